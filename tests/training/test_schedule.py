"""Learning rates over rounds and partial work: by hand, the same after a resume, and nothing of it by default."""

import math
from typing import Any

import pytest
import torch

from rebafl import UserError
from rebafl.algorithms.interface import Training
from rebafl.training.schedule import in_round, rate
from support.toy import lines, run_toy, same_bits, weights


def rates(rounds, **training):
    return [rate(Training(**training), round) for round in rounds]


def test_schedules_by_hand():
    assert rates([1, 9, 500]) == [1.0, 1.0, 1.0]
    assert rates([1, 2, 3, 4, 5], schedule="step", schedule_rounds=2, schedule_factor=0.5) == [1, 1, 0.5, 0.5, 0.25]
    assert rates([1, 2, 4], schedule="decay", schedule_factor=0.5) == [1, 0.5, 0.125]
    cosine = rates([1, 3, 4, 99], schedule="cosine", schedule_rounds=4)
    assert cosine == pytest.approx([1, 0.5, (1 - math.sqrt(0.5)) / 2, (1 - math.sqrt(0.5)) / 2])
    assert rates([1, 2, 4, 5], warmup=4) == [0.25, 0.5, 1, 1]
    assert rates([1, 2, 3], warmup=2, schedule="decay", schedule_factor=0.5) == [0.5, 0.5, 0.25]


def test_nothing_of_it_by_default():
    training = Training()
    assert in_round(training, 0, 7, 3) is training


def test_partial_work_is_drawn_for_each_round_or_once_for_each_client():
    each = Training(epochs=5, epochs_least=2)
    drawn = [in_round(each, 1, round, client).epochs for round in range(1, 41) for client in range(10)]
    assert set(drawn) == {2, 3, 4, 5}
    assert min(drawn.count(n) for n in (2, 3, 4, 5)) > 60
    once = Training(epochs=5, epochs_least=1, epochs_drawn="client")
    by_client = [{in_round(once, 1, round, client).epochs for round in range(1, 9)} for client in range(20)]
    assert all(len(seen) == 1 for seen in by_client)
    assert len(set.union(*by_client)) == 5


SETTINGS: dict[str, dict[str, Any]] = {
    "schedule": {"schedule": "cosine", "schedule_rounds": 4, "warmup": 2},
    "partial": {"epochs_least": 1},
    "adam": {"optimizer": "adamw", "lr": 0.01, "clip_norm": 0.5},
    "nesterov": {"nesterov": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_matters_and_is_the_same_after_a_resume_and_with_workers(tmp_path, toy, name):
    training = {"epochs": 3, "batch": 8, "lr": 0.05} | SETTINGS[name]
    run_toy(tmp_path / "a", toy, rounds=1, training=training)
    resumed = run_toy(tmp_path / "a", toy, rounds=3, training=training, workers=2)
    whole = run_toy(tmp_path / "b", toy, rounds=3, training=training)
    assert lines(resumed.path) == lines(whole.path)
    assert same_bits(weights(resumed), weights(whole))
    plain = run_toy(tmp_path / "c", toy, rounds=3, training={"epochs": 3, "batch": 8, "lr": 0.05})
    assert not same_bits(weights(whole), weights(plain))


def test_clipping_bounds_the_way_of_a_step(tmp_path, toy):
    """One step of plain SGD with a rate of 1 leads just as far as the bound."""
    training = {"epochs": 1, "batch": 100, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.01}
    record = run_toy(
        tmp_path / "r", toy, rounds=2, training=training, algorithm="fedavg",
        partition={"kind": "iid", "clients": 4}, participation={"kind": "fraction", "share": 0.25},
    )  # fmt: skip
    before = record.server_at(1)["weights"]
    moved = [weights(record)[name] - before[name] for name in before]
    assert float(torch.cat([part.flatten() for part in moved]).norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("other", [{"optimizer": "adam"}, {"nesterov": True}])
def test_scaffold_says_why_it_needs_plain_sgd(tmp_path, toy, other):
    with pytest.raises(UserError, match="scaffold needs SGD with plain momentum, since it takes mean gradients"):
        run_toy(tmp_path / "r", toy, algorithm="scaffold", training=other)


def test_scaffold_knows_the_rate_and_the_steps_of_its_round(tmp_path, toy):
    """Its variates divide by the rate that the round really had, not by the one of the settings."""
    full = run_toy(tmp_path / "a", toy, rounds=1, algorithm="scaffold", training={"epochs": 1, "batch": 20, "lr": 1e-3})
    half = run_toy(
        tmp_path / "b", toy, rounds=1, algorithm="scaffold",
        training={"epochs": 1, "batch": 20, "lr": 2e-3, "warmup": 2},
    )  # fmt: skip
    assert same_bits(full.server()["state"], half.server()["state"])
    assert float(full.server()["state"]["head.bias"].abs().max()) > 1e-3
