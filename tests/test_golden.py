"""Every kind of run gives the bits that version 0.1 gave, resumed, in several processes and as a federation too."""

import json

import pytest

from golden.make import BITS, check, computed, digests, names, simulated
from support.grid import as_in_a_task

RECORDED = json.loads(BITS.read_text())


@pytest.fixture(autouse=True)
def _in_a_task(monkeypatch):
    as_in_a_task(monkeypatch)


@pytest.mark.parametrize("name", names())
def test_the_bits_are_those_of_version_0_1(tmp_path, name):
    check(computed(name, tmp_path), RECORDED["runs"][name], RECORDED["torch"])


@pytest.mark.parametrize("name", ["rebafl", "scaffold", "moon", "rebafl gaussian", "feddyn lost", "cnn scaffold"])
def test_a_resumed_run_gives_them_too(tmp_path, name):
    simulated(name, tmp_path / "run", rounds=1)
    assert len(digests(tmp_path / "run")["accuracy"]) == 1
    check(digests(simulated(name, tmp_path / "run")), RECORDED["runs"][name], RECORDED["torch"])


@pytest.mark.parametrize("name", ["rebafl", "scaffold", "fedavg-ft", "cnn rebafl"])
def test_two_workers_give_them_too(tmp_path, name):
    check(digests(simulated(name, tmp_path / "run", workers=2)), RECORDED["runs"][name], RECORDED["torch"])


def test_no_two_recorded_runs_are_one():
    """So that each option that is tried here has an effect."""
    alike = {"bsm-fedavg"}  # where clients hold as much of each class that they hold, FedLC's loss is the same
    servers = [run["server"] for name, run in RECORDED["runs"].items() if name not in alike]
    assert len(set(servers)) == len(servers)
