"""One member lies in every round, mostly in ways that no check can refuse: the others' accuracy stays within a point.

The problem is easy and the test set large, so that a point is more than chance: 20 of 2,000 samples. Time passes only
while the server waits, so that a busy machine costs no honest member its reply, and rounds are timed exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rebafl import UserError
from rebafl.federation.app.server import ask, fetch
from support.grid import FakeGrid, Node, run, same_server, simulated
from support.hostile import ABOUT_SAMPLES, ABOUT_SHARED, ABOUT_WEIGHTS, BACK, HOSTILE, both, times
from support.toy import CLASSES, WIDTH

MEMBERS, LIAR, ACCOMPLICE, ROUNDS = 8, 5, 2, 4
DEADLINE, LATEST = 0.5, 2.0  # seconds, and how much later a round may close
EASY = {
    "model": "mlp",
    "rounds": ROUNDS,
    "settings": "partition=iid partition.clients=8 training.epochs=2 training.batch=20 training.lr=0.1",
    "deadline": DEADLINE,
    "min-nodes": 1,
    "wait": 0.2,
    "robust": "trimmed",
}


@pytest.fixture(scope="session")
def easy_file(tmp_path_factory) -> str:
    """Four clouds that hardly overlap."""
    random = np.random.default_rng(3)
    centres = 3.0 * random.normal(size=(CLASSES, WIDTH))
    arrays: dict[str, Any] = {}
    for part, each in (("train", 400), ("test", 500)):
        labels = np.repeat(np.arange(CLASSES), each)
        arrays[f"x_{part}"] = (centres[labels] + random.normal(size=(len(labels), WIDTH))).astype(np.float32)
        arrays[f"y_{part}"] = labels
    path = tmp_path_factory.mktemp("data") / "easy.npz"
    np.savez(path, **arrays)
    return str(path)


class Clock:
    """Takes the place of `time` where the server waits."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(ask, "time", clock)
    monkeypatch.setattr(fetch, "time", clock)
    return clock


@pytest.fixture
def easy(tmp_path, easy_file):
    return {**EASY, "dataset": easy_file, "out": str(tmp_path / "federation")}


def members(config, without=()):
    return [Node(part, config) for part in range(MEMBERS) if part not in without]


@pytest.fixture(scope="session")
def without_liar(easy_file, tmp_path_factory):
    """The accuracy that the others reach by themselves, with the mean, by algorithm."""
    reached = {}

    def accuracy(algorithm):
        if algorithm not in reached:
            out = tmp_path_factory.mktemp("honest") / "run"
            config = {**EASY, "dataset": easy_file, "out": str(out), "algorithm": algorithm, "robust": "none"}
            reached[algorithm] = run(config, FakeGrid(members(config, [LIAR]))).rounds()[-1].accuracy
            assert reached[algorithm] > 95, "else the problem is not easy"
        return reached[algorithm]

    return accuracy


def check(config, clock, lie, best, liars=(LIAR,), **changes):
    """A run with these liars: all rounds are closed in time, none is lost, and the model is as good as without them."""
    began = clock.now
    grid = FakeGrid(members(config), lambda part, round, reply: lie(round, reply) if part in liars else reply)
    lines = run(config, grid, **changes).rounds()
    assert clock.now - began <= ROUNDS * (DEADLINE + LATEST)
    assert [line.updated for line in lines] == [True] * ROUNDS
    honest = set(range(MEMBERS)) - set(liars)
    assert all(honest <= line.used for line in lines), "an honest member was left out"
    assert lines[-1].accuracy > best - 1.0
    return lines


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_member_changes_little(easy, clock, without_liar, name):
    check(easy, clock, HOSTILE[name], without_liar("fedavg"), algorithm="fedavg")


@pytest.mark.parametrize("name", ABOUT_SHARED)
def test_prototypes_can_be_lied_about_too(easy, clock, without_liar, name):
    check(easy, clock, ABOUT_SHARED[name], without_liar("rebafl"), algorithm="rebafl")


@pytest.mark.parametrize("name", ["the opposite shared, 42 times", "noise shared", "the opposite of everything"])
def test_variates_can_be_lied_about_too(easy, clock, without_liar, name):
    check(easy, clock, ABOUT_SHARED[name], without_liar("scaffold"), algorithm="scaffold")


@pytest.mark.parametrize("rule", ["median", "krum"])
@pytest.mark.parametrize("algorithm", ["fedavg", "rebafl"])
def test_two_that_agree_change_little_either(easy, clock, without_liar, algorithm, rule):
    lie = both(times(BACK), times(BACK, "shared")) if algorithm == "rebafl" else times(BACK)
    check(easy, clock, lie, without_liar(algorithm), (LIAR, ACCOMPLICE), algorithm=algorithm, robust=rule)


@pytest.mark.parametrize("name", ["the opposite, 7.5 times", "everything is class 1", "noise of 4"])
def test_the_mean_would_not_survive_it(easy, without_liar, name):
    """Else the tests above show nothing."""
    lie = HOSTILE[name]
    grid = FakeGrid(members(easy), lambda part, round, reply: lie(round, reply) if part == LIAR else reply)
    last = run(easy, grid, algorithm="fedavg", robust="none", patience=9).rounds()[-1]
    assert last.accuracy < without_liar("fedavg") - 1.0


@pytest.mark.parametrize("rule", ["clip", "trimmed", "median", "krum"])
def test_a_federation_has_the_bits_of_the_simulator(easy, tmp_path, rule):
    """After a stop in between, too."""
    config = {**easy, "algorithm": "rebafl", "robust": rule}
    run(config, FakeGrid(members(config)), rounds=1)
    assert same_server(run(config, FakeGrid(members(config))), simulated(config, tmp_path / "simulated"))


@pytest.mark.parametrize("rule", ["clip", "median"])
def test_masked_rounds_refuse_a_rule_in_one_sentence(easy, rule):
    config = {**easy, "robust": rule, "settings": "protect.secagg=true", "members": "members.toml"}
    with pytest.raises(UserError, match=f"robust={rule} compares the uploads of single clients"):
        run(config, FakeGrid([]))


def test_there_are_enough_kinds_of_lies():
    assert len({*HOSTILE, *ABOUT_SHARED}) >= 30
    assert len({*ABOUT_WEIGHTS, *ABOUT_SAMPLES, *ABOUT_SHARED}) >= 30, "and as many that no check refuses"
