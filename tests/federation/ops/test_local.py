"""A federation on this machine."""

import socket
import sys

import pytest

from rebafl.base.errors import UserError
from rebafl.federation.ops.layout import Plan, create
from rebafl.federation.ops.local import LocalFederation
from rebafl.federation.ops.processes import free_ports, is_taken


def test_a_taken_port_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        create(tmp_path / "fed", Plan(1, (), "127.0.0.1", taken.getsockname()[1], (9093,)))
        with pytest.raises(UserError, match=f"Port {taken.getsockname()[1]} .* is taken"):
            LocalFederation(tmp_path / "fed").begin({"rounds": 1})
    assert not LocalFederation(tmp_path / "fed").is_up


@pytest.fixture
def fed(tmp_path):
    """A federation whose machines are stand-ins: the server listens, and that is all."""
    server, *nodes = free_ports(3)
    create(tmp_path / "fed", Plan(2, (), "127.0.0.1", server, tuple(nodes)))
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {server})); time.sleep(300)"
    (tmp_path / "fed" / "server" / "start.sh").write_text(f'"{sys.executable}" -c "{listen}"\n')
    for number in range(2):
        (tmp_path / "fed" / f"node-{number}" / "start.sh").write_text("sleep 300\n")
    return LocalFederation(tmp_path / "fed")


def test_a_server_that_says_why_it_does_not_start_is_heard(fed):
    (fed.server / "log").write_text("of an earlier time\n")
    (fed.server / "start.sh").write_text("echo some line; echo The certificate has expired.; exit 2\n")
    with pytest.raises(UserError, match=r"^The certificate has expired\.$"):
        fed.begin({"rounds": 1})
    assert not fed.is_up


@pytest.mark.parametrize("mistake", ["folder", "port", "interrupt"])
def test_a_federation_that_cannot_start_whole_is_not_left_running(fed, monkeypatch, mistake):
    started, begun = [], LocalFederation.start

    def start(federation, name, environment=None):
        if mistake == "interrupt" and name == "node-1":
            raise KeyboardInterrupt
        begun(federation, name, environment)
        started.append(federation.started()[name])

    monkeypatch.setattr(LocalFederation, "start", start)
    if mistake == "folder":
        (fed.folder / "node-1" / "start.sh").unlink()
        (fed.folder / "node-1" / "log").mkdir()
    with socket.socket() as taken:
        if mistake == "port":
            taken.bind(("127.0.0.1", fed.plan.node_ports[1]))
            taken.listen()
        with pytest.raises((UserError, OSError, KeyboardInterrupt)):
            fed.begin({"rounds": 1})
    assert [process for process in started if process.alive] == []
    assert len(started) == (0 if mistake == "port" else 2)  # what can be seen before is seen before
    assert not fed.is_up
    assert not is_taken(fed.plan.port)
