"""FedBABU: its head stays as it was, and its classic mistake, which must be noticed."""

import pytest
import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.fedbabu import FedBABU
from rebafl.algorithms.interface import Algorithm
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import broken, federation
from support.toy import TinyNet, run_toy, weights


def test_fedbabus_head_never_moves_and_is_not_uploaded(tmp_path, toy):
    short, long = (run_toy(tmp_path / str(n), toy, algorithm="fedbabu", rounds=n) for n in (1, 4))
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg")
    assert torch.equal(weights(short)["head.weight"], weights(long)["head.weight"])
    assert not torch.equal(weights(short)["hidden.weight"], weights(long)["hidden.weight"])
    head = (5 * 4 + 4) * 4
    for babu, avg in zip(long.rounds(), plain.rounds(), strict=False):
        assert avg.bytes_up - babu.bytes_up == head * len(babu.active)


def check_head_stays(algorithm, toy):
    with torch_stream(0, "model"):
        start = weights_of(TinyNet().double())
    for server, _, uploads in federation(toy, algorithm, 2):
        for name in ("head.weight", "head.bias"):
            assert torch.equal(server.weights[name], start[name]), f"{name} moved"
        assert "head.weight" not in uploads[0].change


def test_fedbabu_neither_trains_nor_decays_the_head(toy):
    check_head_stays(FedBABU(), toy)


def decayed_head(self, net, context, steps):
    """Frozen for the gradient, but not for weight decay."""
    upload = Algorithm.upload(self, net, context, steps)
    head = {n: -1e-3 * w for n, w in context.sent.weights.items() if n.startswith("head.")}
    return Upload(upload.client, {**upload.change, **head}, upload.counts)


def test_mistakes_of_fedbabu_are_noticed(toy):
    with pytest.raises(AssertionError, match=r"head\.weight moved"):
        check_head_stays(broken(FedBABU(), {"upload": decayed_head}), toy)
