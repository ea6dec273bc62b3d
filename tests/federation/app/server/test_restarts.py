"""A server that is killed or whose disk is full loses no finished round."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from rebafl import UserError
from rebafl.runs.environment import machine
from rebafl.runs.record import Record
from support.grid import STATEFUL, FakeGrid, nodes_of, run, same_server, simulated
from support.toy import lines


class Killed(BaseException):
    pass


@pytest.mark.parametrize("algorithm", ["rebafl", *STATEFUL])
def test_killed_in_mid_round_the_server_goes_on_from_the_last_finished_one(tmp_path, config, algorithm):
    """With new node ids, as after a restart of the SuperLink, and states in the nodes' folders."""
    config["algorithm"] = algorithm

    def kill(part, round, reply):
        if (part, round) == (2, 3):  # two clients have trained already, and are ahead
            raise Killed("in round 3")
        return reply

    with pytest.raises(Killed, match="in round 3"):
        run(config, FakeGrid(nodes_of(config, tmp_path / "kept"), kill))
    assert Record(Path(config["out"])).saved_server() is not None
    real = run(config, FakeGrid(nodes_of(config, tmp_path / "kept")))
    assert same_server(real, simulated(config, tmp_path / "simulation"))
    kept = sorted(path.name.split("-")[1] for path in (tmp_path / "kept").rglob("*/client-1/*"))
    confirmed_and_pending = ["2", "3"]
    assert kept == (confirmed_and_pending if algorithm in STATEFUL else [])


def test_a_full_disk_ends_the_run_in_one_sentence_and_loses_nothing(tmp_path, config, monkeypatch):
    sync = os.fsync
    full: list[bool] = []

    def fsync(handle):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    def fill(part, round, reply):
        full[:] = [True] if round == 2 else []
        return reply

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)") as caught:
        run(config, FakeGrid(nodes_of(config), fill))
    assert "\n" not in str(caught.value)
    full.clear()
    assert len(Record(Path(config["out"])).rounds()) == 1
    assert same_server(run(config), simulated(config, tmp_path / "simulation"))


def test_another_kind_of_bits_needs_the_word_of_the_run_config(config, monkeypatch):
    facts = machine()
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: facts | {"bits": "one"})
    run(config, rounds=1)
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: facts | {"bits": "other"})
    with pytest.raises(UserError, match="accept-changes=true"):
        run(config)
    assert len(lines(run(config, **{"accept-changes": True}).path)) == 3
    environment = json.loads((Path(config["out"]) / "environment.json").read_text())
    assert environment["went_on_with"] == [{"after_round": 1, "bits": "other"}]


def test_a_simulation_and_a_federation_do_not_share_a_directory(config):
    record = simulated({**config, "rounds": 1}, Path(config["out"]))
    with pytest.raises(UserError, match="holds the run of a simulation"):
        run(config)
    run({**config, "out": f"{record.path}-2"})
    with pytest.raises(UserError, match="holds the run of a federation"):
        simulated({**config, "rounds": 5}, Path(f"{record.path}-2"))
