"""Whatever clients send or lose, a round is closed, and it says what became of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rebafl import parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.runs.record import Record
from rebafl.runs.rounds import Checks
from rebafl.runs.simulate import NothingLearned
from support.engines import Sabotage
from support.toy import lines, run_toy, same_bits, weights


def test_the_readings_of_dropout_give_the_same_model(tmp_path, toy):
    """A lost upload leaves no trace: only who trained, and what was sent, differ."""
    away, lost = (run_toy(tmp_path / d, toy, dropout=d) for d in ("away", "lost"))
    assert same_bits(weights(away), weights(lost))
    for a, b in zip(lines(away.path), lines(lost.path), strict=True):
        assert b["active"] == list(range(6))
        assert set(b["active"]) - set(b["lost"]) == set(a["active"])
        assert b["bytes_down"] * len(a["active"]) == a["bytes_down"] * 6
        assert b["bytes_up"] * len(a["active"]) == a["bytes_up"] * 6


@parameters
class Poison(Algorithm):
    """FedAvg, but some clients send nonsense."""

    name = "poison"
    clients: tuple[int, ...] = (0, 2)

    def upload(self, net, context, steps):
        upload = super().upload(net, context, steps)
        if context.client.id in self.clients:
            upload.change["head.bias"].fill_(float("nan"))
        return upload


def test_nonsense_is_refused_and_recorded_and_the_round_goes_on(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "poison", Poison)
    record = run_toy(tmp_path / "r", toy, algorithm="poison", participation="always", rounds=2)
    assert [set(line.refused) for line in record.rounds()] == [{0, 2}] * 2
    assert "head.bias holds NaN" in record.rounds()[0].refused[0]
    assert all(torch.isfinite(tensor).all() for tensor in weights(record).values())


def test_if_nothing_is_left_the_model_stays_and_the_round_says_so(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "poison", Poison)
    poison = {"kind": "poison", "clients": list(range(6))}
    for rounds in (1, 2):
        with pytest.raises(NothingLearned, match=f"none of {rounds} rounds"):
            run_toy(tmp_path / str(rounds), toy, algorithm=poison, participation="always", rounds=rounds)
    one, two = Record(tmp_path / "1"), Record(tmp_path / "2")
    assert same_bits(weights(one), weights(two))
    assert [line.updated for line in two.rounds()] == [False, False]
    assert two.rounds()[0].diversity is None


@parameters
class Overflow(Algorithm):
    """FedAvg whose server computes infinity in round 2."""

    name = "overflow"

    def aggregate(self, server, uploads, clients):
        after = super().aggregate(server, uploads, clients)
        if server.state["n"] == 1:
            after.weights["head.bias"].fill_(float("inf"))
        return replace(after, state={"n": server.state["n"] + 1})

    def server_state(self, net, task):
        return {"n": torch.zeros(())}


def test_a_model_that_is_not_finite_is_dropped_and_the_run_can_go_on(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "overflow", Overflow)
    record = run_toy(tmp_path / "r", toy, algorithm="overflow", rounds=2)
    assert record.rounds()[1].updated is False
    assert "head.bias holds NaN or infinity" in record.rounds()[1].discarded
    assert same_bits(weights(record), weights(run_toy(tmp_path / "one", toy, algorithm="overflow", rounds=1)))
    assert run_toy(tmp_path / "r", toy, algorithm="overflow", rounds=3).round == 3


def test_one_client_alone_that_fails_later_on_does_not_stop_the_run(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)
    (tmp_path / "t.csv").write_text("client,round\n0,1\n1,2\n0,3\n")
    only = {"kind": "trace", "path": str(tmp_path / "t.csv")}
    record = run_toy(tmp_path / "r", toy, algorithm="sabotage", participation=only)
    assert [line.updated for line in record.rounds()] == [True, False, True]


def test_an_empty_round_of_a_trace_is_an_empty_round(tmp_path, toy):
    (tmp_path / "t.csv").write_text("client,round\n0,1\n3,3\n")
    record = run_toy(tmp_path / "r", toy, participation={"kind": "trace", "path": str(tmp_path / "t.csv")})
    assert [line.active for line in record.rounds()] == [[0], [], [3]]
    assert [line.updated for line in record.rounds()] == [True, False, True]


@pytest.mark.parametrize(
    ("loss", "before", "usable"),
    [
        (999.0, 1.0, True),
        (1001.0, 1.0, False),
        (1001.0, 2000.0, True),  # it gets better
        (1001.0, math.nan, False),
        (math.nan, math.nan, False),
        (math.inf, math.inf, False),
    ],
)
def test_a_round_that_ends_with_such_a_loss_is_not_taken(loss, before, usable):
    assert (Checks(1, loss=1e3).unusable(loss, lambda: before) == "") == usable


def test_without_a_bound_a_loss_must_only_be_finite():
    assert Checks(1).unusable(1e30, lambda: 1.0) == ""
    assert "would be nan" in Checks(1).unusable(math.nan, lambda: 1.0)


def test_a_trace_that_is_shorter_than_the_run_is_warned_of(tmp_path, toy):
    (tmp_path / "t.csv").write_text("client,round\n0,1\n1,2\n")
    trace = {"kind": "trace", "path": str(tmp_path / "t.csv")}
    short = run_toy(tmp_path / "s", toy, participation=trace, algorithm="fedavg")
    (said,) = [text for text in short.environment()["warnings"] if "trace" in text]
    assert said == "The trace of participation ends with round 2: in the rounds after it, up to 3, nobody is there."
    assert [list(line.active) for line in short.rounds()] == [[0], [1], []]
    enough = run_toy(tmp_path / "e", toy, participation=trace, algorithm="fedavg", rounds=2)
    assert not [text for text in enough.environment()["warnings"] if "trace" in text]
