"""Weights and statistics of any network travel and come back."""

from typing import Any

import pytest
import torch
from torch import nn

from rebafl.models.choice import ModelChoice, make_net
from rebafl.models.contract import extract, load_weights, weights_of
from support.toy import TinyNet, make_toy, run_toy, same_bits, weights


def test_loading_copies_values_and_keeps_the_memory_layout():
    net: Any = make_net(ModelChoice(), (1, 28, 28), 10, 0)
    strides = net.conv2.weight.stride()
    load_weights(net, {name: tensor.contiguous() + 1 for name, tensor in weights_of(net).items()})
    assert net.conv2.weight.stride() == strides


class Normed(TinyNet):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.3)

    def features(self, x):
        return self.drop(super().features(self.norm(x)))


def test_batch_norm_statistics_are_averaged_and_used(tmp_path):
    """The policy: running means, variances and counters travel and are averaged by samples, like weights."""
    toy = make_toy()
    always = {"participation": {"kind": "always"}, "partition": {"kind": "iid", "clients": 2}}
    record = run_toy(tmp_path / "a", toy, Normed, rounds=1, algorithm="fedavg", **always)
    merged = weights(record)
    assert merged["norm.num_batches_tracked"].item() == 26  # 2 epochs of 13 batches, on both clients
    inputs = toy.inputs(toy.x_train)
    assert torch.allclose(merged["norm.running_mean"], inputs.mean(0), atol=0.35)
    assert merged["norm.running_mean"].abs().sum() > 0
    frozen = Normed()
    load_weights(frozen, merged)
    frozen.eval()
    by_hand = (frozen(toy.inputs(toy.x_test)).argmax(1) == toy.y_test).float().mean().item() * 100
    assert record.rounds()[-1].accuracy == pytest.approx(by_hand)


def test_layers_that_draw_random_numbers_repeat(tmp_path):
    toy = make_toy()
    runs = [run_toy(tmp_path / str(k), toy, Normed, workers=k) for k in (1, 2)]
    torch.rand(5)  # the global stream must not matter
    assert same_bits(weights(runs[0]), weights(runs[1]))


def test_extract_runs_without_gradients_and_puts_the_mode_back():
    net: Any = make_net(ModelChoice(kind="python"), (6,), 4, 0, Normed).train()
    before = net.norm.running_mean.clone()
    assert not extract(net, torch.randn(7, 6)).requires_grad
    assert net.training
    assert torch.equal(net.norm.running_mean, before)
