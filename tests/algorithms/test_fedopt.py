"""FedOpt: each variant number by number, torch's Adagrad, two rounds by hand, and mistakes that must be noticed."""

import math
from typing import Any

import pytest
import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.fedopt import FedOpt
from rebafl.algorithms.interface import Server, Task
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import (
    ThreeWeights,
    broken,
    check_buffers_are_averaged_as_in_fedavg,
    check_close,
    federation,
    three,
)
from support.toy import TinyNet

LR, TAU = 0.05, 1e-3


def mean_changes(uploads):
    total = sum(upload.samples for upload in uploads)
    return {name: sum(u.samples / total * u.change[name] for u in uploads) for name in uploads[0].change}


class OneNumber:
    """The paper's second algorithm, for one weight."""

    def __init__(self, weight):
        self.weight, self.m, self.v = weight, 0.0, TAU**2

    def step(self, variant, delta):
        self.m = 0.9 * self.m + 0.1 * delta if variant != "adagrad" else delta
        if variant == "adagrad":
            self.v += delta**2
        elif variant == "adam":
            self.v = 0.99 * self.v + 0.01 * delta**2
        else:
            self.v += math.copysign(0.01 * delta**2, delta**2 - self.v)
        self.weight += LR * self.m / (math.sqrt(self.v) + TAU)


def check_every_number(algorithm, toy):
    with torch_stream(0, "model"):
        first = weights_of(TinyNet().double())
    numbers = {name: [OneNumber(value) for value in tensor.flatten().tolist()] for name, tensor in first.items()}
    for server, _, uploads in federation(toy, algorithm):
        for name, change in mean_changes(uploads).items():
            for number, delta in zip(numbers[name], change.flatten().tolist(), strict=True):
                number.step(algorithm.variant, delta)
            found = server.weights[name].flatten().tolist()
            assert found == pytest.approx([n.weight for n in numbers[name]], abs=1e-10), f"{name} differs"


@pytest.mark.parametrize("variant", ["adam", "yogi", "adagrad"])
def test_every_number_is_the_papers(toy, variant):
    check_every_number(FedOpt(variant=variant, lr=LR), toy)


def test_adagrad_is_torchs(toy):
    with torch_stream(0, "model"):
        net = TinyNet().double()
    theirs = torch.optim.Adagrad(net.parameters(), lr=LR, initial_accumulator_value=TAU**2, eps=TAU)
    for server, _, uploads in federation(toy, FedOpt(variant="adagrad", lr=LR)):
        change = mean_changes(uploads)
        for name, parameter in net.named_parameters():
            parameter.grad = -change[name]
        theirs.step()
        check_close(server.weights, weights_of(net))


def test_by_hand():
    """tau = .5, so v begins at .25; beta1 = beta2 = .5, lr = 1, w = (1, 0, 0), changes (2, 0, -.5).

    Adam: m = (1, 0, -.25); v = (.125 + 2, .125, .125 + .125) = (2.125, .125, .25).
    Yogi: v = .25 + .5 * 4 where the square is larger, .25 - .5 * 0 where it is 0, and .25 where it is .25.
    Adagrad: m is the change; v = (4.25, .25, .5).
    """
    expected: dict[Any, Any] = {
        "adam": ((1.0, 0.0, -0.25), (2.125, 0.125, 0.25)),
        "yogi": ((1.0, 0.0, -0.25), (2.25, 0.25, 0.25)),
        "adagrad": ((2.0, 0.0, -0.5), (4.25, 0.25, 0.5)),
    }
    for variant, (m, v) in expected.items():
        algorithm, net = FedOpt(variant=variant, lr=1.0, tau=0.5, beta1=0.5, beta2=0.5), ThreeWeights()
        server = Server(weights_of(net), algorithm.server_state(net, Task(2, 1, 1)))
        after = algorithm.aggregate(server, [Upload(0, three(2.0, 0.0, -0.5), torch.tensor([1, 0]))], 1)
        moments = {f"m/{k}": t for k, t in three(*m).items()} | {f"v/{k}": t for k, t in three(*v).items()}
        check_close(after.state, moments)
        steps = [first / (math.sqrt(second) + 0.5) for first, second in zip(m, v, strict=True)]
        check_close(after.weights, three(1 + steps[0], steps[1], steps[2]))


def test_buffers_are_averaged():
    for variant in ("adam", "yogi", "adagrad"):
        check_buffers_are_averaged_as_in_fedavg(FedOpt(variant=variant, lr=1.0))


def bias_corrected(self, before, change):
    """Exact for the first round, enough to be noticed."""
    return FedOpt.first(self, before, change) / (1 - self.beta1)


def squares_from_zero(self, net, task):
    return {name: torch.zeros_like(tensor) for name, tensor in FedOpt.server_state(self, net, task).items()}


def sign_turned_round(self, before, square):
    return before + (1 - self.beta2) * square * torch.sign(before - square)


def damped_like_adam(self, before, square):
    return self.beta2 * before + (1 - self.beta2) * square


@pytest.mark.parametrize(
    ("variant", "mistake"),
    [
        ("adam", {"first": bias_corrected}),
        ("adam", {"server_state": squares_from_zero}),
        ("yogi", {"second": sign_turned_round}),
        ("yogi", {"second": damped_like_adam}),
        ("adagrad", {"second": damped_like_adam}),
    ],
)
def test_mistakes_are_noticed(toy, variant, mistake):
    with pytest.raises(AssertionError, match="differs"):
        check_every_number(broken(FedOpt(variant=variant, lr=LR), mistake), toy)
