"""Whole simulated runs with protect.secagg: every method, any order and workers, and what the record says."""

import json

import numpy as np
import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms import KINDS
from rebafl.algorithms.fedavg import FedAvg
from rebafl.base.config import parameters
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record
from support.methods import BOUNDS
from support.toy import lines, run_toy, same_bits, weights

ON = {"secagg": True}
ALL = {"participation": "always"}


@pytest.mark.parametrize("name", sorted(set(KINDS) - BOUNDS))
def test_every_method_runs_and_stays_close_to_the_plain_sum(toy, tmp_path, name):
    """One round, before rounding can grow: the means agree to the resolution, and the server's state too."""
    algorithm = {"algorithm": {"kind": name, **({"samples": 2} if name == "fedavg-ft" else {})}, **ALL}
    plain = run_toy(tmp_path / "plain", toy, rounds=1, **algorithm)
    summed = run_toy(tmp_path / "summed", toy, rounds=1, protect=ON, **algorithm)
    (line,) = summed.rounds()
    assert (line.updated, line.refused, line.discarded) == (True, {}, "")
    assert not KINDS[name]().needs_each_upload()
    for group, tensors in plain.server().items():
        for tensor_name, tensor in tensors.items():
            found = summed.server()[group][tensor_name]
            scale = 100.0 if name == "feddyn" else 1.0  # its cloud model is the mean - h / alpha
            assert torch.allclose(found, tensor, rtol=1e-6, atol=1e-7 * scale), (group, tensor_name)


@pytest.mark.parametrize("name", ["rebafl", "scaffold", "feddyn", "fedbabu"])
@pytest.mark.parametrize("protect", [{}, {"min_holders": 3, "counts": "withheld", "update_clip": 0.1}])
def test_any_number_of_workers_and_a_pause_give_the_same_bits(toy, tmp_path, name, protect):
    changes = {"algorithm": name, "protect": {**ON, **protect}}
    whole = run_toy(tmp_path / "whole", toy, workers=2, **changes)
    run_toy(tmp_path / "parts", toy, rounds=1, **changes)
    parts = run_toy(tmp_path / "parts", toy, **changes)
    assert lines(whole.path) == lines(parts.path)
    assert same_bits(weights(whole), weights(parts))
    assert same_bits(whole.server().get("state", {}), parts.server().get("state", {}))


@pytest.mark.parametrize(
    "protect",
    [
        {"min_count": 11},
        {"counts": "rounded"},
        {"counts": "withheld"},
        {"min_holders": 4},
        {"clip": 0.5, "noise": 0.5, "min_count": 2},
        {"update_clip": 0.05, "update_noise": 0.1},
        {"update_clip": 0.05, "central_noise": 0.5, "counts": "withheld"},
        {"clip": 1.0, "noise": 5.0, "counts": "rounded", "budget": 5.0, "min_holders": 2},
    ],
)
def test_what_combines_with_it_does_what_it_does_without(toy, tmp_path, protect):
    plain = run_toy(tmp_path / "plain", toy, rounds=1, protect=protect, **ALL)
    summed = run_toy(tmp_path / "summed", toy, rounds=1, protect={**protect, **ON}, **ALL)
    (before,), (after,) = plain.rounds(), summed.rounds()
    assert (after.hidden, after.refused, after.epsilon, after.spent) == (
        before.hidden, before.refused, before.epsilon, before.spent,
    )  # fmt: skip
    assert before.diversity is not None
    assert after.diversity is None, "it needs each client's change"
    for group in plain.server():
        for name, tensor in plain.server()[group].items():
            assert torch.allclose(summed.server()[group][name], tensor, rtol=1e-5, atol=1e-6), name


def test_without_it_nothing_changes(toy, tmp_path):
    plain = run_toy(tmp_path / "plain", toy)
    off = run_toy(tmp_path / "off", toy, protect={"secagg": False, "secagg_stay": 0.67})
    assert lines(plain.path) == lines(off.path)
    assert same_bits(weights(plain), weights(off))
    old = {"protect": {"min_count": 3}}
    assert make_settings(old).digest == make_settings({"protect": {"min_count": 3, "secagg": False}}).digest
    assert make_settings(old).digest != make_settings({"protect": {"min_count": 3, "secagg": True}}).digest


def test_an_algorithm_that_needs_each_upload_is_refused(toy, tmp_path, monkeypatch):
    @parameters
    class Picky(FedAvg):
        name = "picky"

        def aggregate(self, server, uploads, clients):
            return super().aggregate(server, uploads[:1], clients)

    monkeypatch.setitem(KINDS, "picky", Picky)
    with pytest.raises(UserError, match=r"algorithm=picky replaces aggregate\(\).*give it next_server\(\) instead"):
        run_toy(tmp_path / "r", toy, algorithm="picky", protect=ON)
    assert run_toy(tmp_path / "plain", toy, algorithm="picky", rounds=1).rounds()[0].updated


def test_bounds_that_leave_no_fractions_are_refused(toy, tmp_path):
    with pytest.raises(UserError, match=r"too few bits for fractions; use a smaller protect\.secagg_bound"):
        run_toy(tmp_path / "r", toy, protect={**ON, "secagg_bound": 1e15})


def test_classes_that_are_announced_in_clear_are_refused():
    with pytest.raises(UserError, match=r"which secagg is to hide; choose protect\.holders=aggregator"):
        make_settings({"protect": {**ON, "min_holders": 2, "holders": "announced"}})


def test_an_upload_beyond_the_bound_is_refused_and_the_others_are_summed(toy, tmp_path):
    protect = {**ON, "secagg_bound": 0.175, "secagg_stay": 0.5}
    (line,) = run_toy(tmp_path / "r", toy, algorithm="fedavg", rounds=1, protect=protect, **ALL).rounds()
    assert 0 < len(line.refused) < 6, "some and not all: else this shows nothing"
    assert all("beyond the bound 0.175" in reason for reason in line.refused.values())
    assert line.updated


def test_too_few_that_stay_discard_the_round_and_the_run_goes_on(toy, tmp_path):
    """Lost uploads count as dropped; what the clients of a discarded round handed in is not kept."""
    changes = {"dropout": "lost", "delivery": {"kind": "bernoulli", "p": 0.6}, "algorithm": "scaffold", **ALL}
    record = run_toy(tmp_path / "r", toy, rounds=8, protect={**ON, "secagg_stay": 0.8}, **changes)
    found = record.rounds()
    assert {line.updated for line in found} == {True, False}
    for line in found:
        stayed = len(line.active) - len(line.lost)
        assert line.updated == (stayed >= 5)
        if not line.updated:
            assert line.discarded == f"{stayed} of 6 clients stayed to the end; at least 5 must"
    again = run_toy(tmp_path / "again", toy, rounds=8, protect={**ON, "secagg_stay": 0.8}, workers=2, **changes)
    assert lines(record.path) == lines(again.path)


def test_the_record_says_what_it_is(toy, tmp_path):
    record = run_toy(tmp_path / "r", toy, rounds=1, protect=ON)
    assert Record(record.path).config()["protect"]["secagg"] is True
    assert ["masks nothing" in sentence for sentence in record.environment()["warnings"]] == [True]
    line = record.rounds()[0]
    row = json.loads((record.path / "rounds.jsonl").read_text())
    assert RoundLine.read(row) == line
    numbers = sum(int(np.prod(tensor.shape)) for tensor in weights(record).values()) + 4 * 5 + 4 + 1
    assert line.bytes_up == len(line.active) * 8 * numbers
