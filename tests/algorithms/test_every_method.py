"""What holds for every method, and how methods that are the same for some parameters agree, bit for bit."""

import copy

import pytest
import torch

from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.training.loop import train
from support.methods import client, run_method, started
from support.toy import run_toy, same_bits, weights


def test_the_three_methods_differ(tmp_path, toy):
    found = [weights(run_method(tmp_path, toy, name)) for name in ("fedavg", "bsm-fedavg", "rebafl")]
    assert not any(same_bits(found[a], found[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_hooks_are_pure(toy, name):
    """The same client computed twice, or after another client in the same network, gives the same bits."""
    algorithm = KINDS[name]()
    net, sent, _own, _ = started(toy, algorithm)
    kept = copy.deepcopy(sent)
    indices = (torch.arange(45, 75), torch.arange(100, 130), torch.arange(45, 75))
    uploads = [train(net, algorithm, sent, client(toy, index))[0] for index in indices]
    assert same_bits(uploads[0].change, uploads[2].change)
    assert same_bits(uploads[0].shared, uploads[2].shared)
    assert not same_bits(uploads[0].change, uploads[1].change)
    assert same_bits(sent.weights, kept.weights)
    assert same_bits(sent.extra, kept.extra)


NEUTRAL = {
    "fedprox": {"mu": 0.0},
    "moon": {"mu": 0.0},
    "fedrs": {"alpha": 1.0},
    "label-smoothing": {"smoothing": 0.0},
    "fedavgm": {"beta": 0.0},
    "fedhbm": {"beta": 0.0},
    "fedntd": {"beta": 0.0},
    "fedopt": {"beta1": 0.0, "beta2": 1.0, "tau": 2.0**-10, "lr": 2.0**-9},  # v stays tau²: lr / 2 tau is 1, exactly
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_with_its_neutral_parameter_it_is_fedavg(tmp_path, toy, name):
    neutral = run_toy(tmp_path / "n", toy, algorithm={"kind": name, **NEUTRAL[name]})
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg")
    active = run_toy(tmp_path / "a", toy, algorithm=name)
    assert same_bits(weights(neutral), weights(plain))
    assert not same_bits(weights(active), weights(plain))


@pytest.mark.parametrize("name", ["fedlc", "fedrs", "bsm-fedavg"])
def test_with_uniform_counts_it_is_fedavg(tmp_path, toy, name):
    every = {"kind": "pathological", "clients": 6, "classes": 4, "samples": 20}
    found = [weights(run_toy(tmp_path / n, toy, partition=every, algorithm=n)) for n in (name, "fedavg")]
    assert same_bits(*found)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_any_number_of_workers_and_a_resume_give_the_same_bits(tmp_path, toy, name):
    free = {"kind": "pathological", "clients": 6, "classes": 2, "samples": 10}
    few = {"samples": 5} if name == "fedavg-ft" else {}
    changes = {"algorithm": {"kind": name, **few}, "partition": free, "rounds": 4}
    whole = run_toy(tmp_path / "w", toy, workers=2, **changes)
    run_toy(tmp_path / "r", toy, workers=1, **{**changes, "rounds": 2})
    resumed = run_toy(tmp_path / "r", toy, workers=1, **changes)
    assert same_bits(weights(whole), weights(resumed))
    assert [a.accuracy for a in whole.rounds()] == [b.accuracy for b in resumed.rounds()]
    states = [{p.name: p.read_bytes() for p in r.checkpoint.glob("client-*")} for r in (whole, resumed)]
    assert states[0] == states[1]


STATEFUL = [name for name, kind in KINDS.items() if kind.client_state_template is not Algorithm.client_state_template]


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("dropout", ["away", "lost"])
def test_state_moves_only_with_an_upload_that_was_taken(tmp_path, toy, name, dropout):
    before: dict[int, bytes] = {}
    for rounds in (1, 2, 3):
        run = run_toy(tmp_path / "r", toy, algorithm=name, rounds=rounds, dropout=dropout)
        line = run.rounds()[-1]
        files = {int(p.name.split("-")[1]): p.read_bytes() for p in run.checkpoint.glob("client-*")}
        changed = {client for client in files if files[client] != before.get(client)}
        assert changed == set(line.active) - set(line.lost)
        before = files
