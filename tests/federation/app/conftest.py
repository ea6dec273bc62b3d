"""A federation in this process, on the small problem."""

from __future__ import annotations

import numpy as np
import pytest

from rebafl.data.arrays import NAMES
from support.grid import CONFIG, as_in_a_task
from support.toy import make_toy


@pytest.fixture(autouse=True)
def _in_a_task(monkeypatch):
    as_in_a_task(monkeypatch)


@pytest.fixture(scope="session")
def toy_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(path, **{name: getattr(make_toy(), name).numpy() for name in NAMES})
    return str(path)


@pytest.fixture
def config(tmp_path, toy_file) -> dict:
    return {**CONFIG, "dataset": toy_file, "out": str(tmp_path / "federation")}


@pytest.fixture
def masked(config) -> dict:
    """The same with masked rounds; their five stages share a deadline that a busy machine can keep."""
    config["settings"] += " protect.secagg=true"
    return {**config, "deadline": 1.5}
