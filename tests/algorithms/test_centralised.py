"""Centralised: FedAvg with a single client that holds what all hold, each sample once, and is never away."""

import json

import numpy as np
import pytest

from rebafl import UserError, make_settings
from rebafl.federation.app.options import read_run_config
from rebafl.population.partition import Pathological, pooled
from rebafl.population.splitting import split_by
from support.toy import TOY_SETTINGS, lines, run_toy, same_bits, weights

AWAY = {"participation": {"kind": "markov", "leave": 0.9, "join": 0.1}, "dropout": "lost", "delivery": "bernoulli"}


def test_it_is_fedavg_with_one_client_that_has_everything(tmp_path, toy):
    partition = make_settings(TOY_SETTINGS).partition
    held = np.unique(np.concatenate([split_by(partition, toy.y_train.numpy(), 4, 0).indices(c) for c in range(6)]))
    assert len(held) < len(toy.y_train), "samples that no client holds stay out"
    (tmp_path / "all.json").write_text(json.dumps([held.tolist()]))
    one = {"kind": "file", "clients": 1, "path": str(tmp_path / "all.json")}
    found = run_toy(tmp_path / "c", toy, algorithm="centralised", **AWAY)
    expected = run_toy(tmp_path / "f", toy, algorithm="fedavg", partition=one, participation="always")
    assert lines(found.path) == lines(expected.path)
    assert same_bits(weights(found), weights(expected))


def test_every_sample_counts_once(toy):
    """Clients that draw independently hold some samples twice."""
    labels = toy.y_train.numpy()
    split = split_by(Pathological(clients=30, samples=40), labels, 4, seed=1)
    together = pooled(split)
    assert together.clients == 1
    assert together.indices(0).tolist() == sorted({i for client in range(30) for i in split.indices(client).tolist()})
    assert split.table().sum() > len(together.indices(0))


def test_a_validation_part_stays_out_of_it(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="centralised", validation=0.2, partition={"kind": "iid", "clients": 6})
    assert run.rounds()[-1].validation_accuracy is not None
    assert [line.active for line in run.rounds()] == [[0]] * 3


def test_a_federation_refuses_it():
    with pytest.raises(UserError, match="needs all data in one place; simulate it"):
        read_run_config({"algorithm": "centralised"})
