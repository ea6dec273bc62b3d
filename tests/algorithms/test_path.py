"""The length of a round's way is what torch's SGD makes of a gradient of one; the steps are those of the loop."""

import pytest
import torch

from rebafl.algorithms.fedavg import FedAvg
from rebafl.algorithms.interface import Training
from rebafl.algorithms.path import path_length, planned_steps
from rebafl.training.loop import fit
from support.methods import client, started


@pytest.mark.parametrize(("momentum", "steps"), [(0.0, 7), (0.5, 1), (0.5, 6), (0.9, 30)])
def test_the_length_is_that_of_torchs_sgd_under_a_gradient_of_one(momentum, steps):
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.1, momentum=momentum)
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimiser.step()
    assert path_length(Training(lr=0.1, momentum=momentum), steps) == pytest.approx(-weight.item(), rel=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 10, 30, 99])
def test_the_steps_are_those_that_are_taken(toy, batch):
    net, _, _, context = started(toy, FedAvg())
    own = client(toy, torch.arange(45, 75), epochs=3, batch=batch)
    taken = fit(net, own, lambda part: True, lambda batch: FedAvg().loss(net, batch, context))
    assert planned_steps(own) == taken
