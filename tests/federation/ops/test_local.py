"""A federation on this machine."""

import socket

import pytest

from rebafl.base.errors import UserError
from rebafl.federation.ops.layout import Plan, create
from rebafl.federation.ops.local import LocalFederation


def test_a_taken_port_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        create(tmp_path / "fed", Plan(1, (), "127.0.0.1", taken.getsockname()[1], (9093,)))
        with pytest.raises(UserError, match=f"Port {taken.getsockname()[1]} .* is taken"):
            LocalFederation(tmp_path / "fed").begin({"rounds": 1})
    assert not LocalFederation(tmp_path / "fed").is_up
