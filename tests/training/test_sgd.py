"""Is the optimiser torch's own, to the bit?"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rebafl.algorithms.interface import Training
from rebafl.training.sgd import SGD


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 5e-4])
def test_sgd_is_torchs_to_the_bit(momentum: float, weight_decay: float) -> None:
    """Over several steps, with a parameter that gets a gradient only now and then, and one that never does."""
    random = torch.Generator().manual_seed(3)
    start = [torch.randn(4, 3, generator=random) for _ in range(3)]
    ours, theirs = ([nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    training = Training(lr=0.1, momentum=momentum, weight_decay=weight_decay)
    own = SGD(ours, training)
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for step in range(6):
        gradient = torch.randn(4, 3, generator=random)
        own.zero_grad()
        reference.zero_grad()
        for parameters in (ours, theirs):
            parameters[0].grad = gradient.clone()
            if step % 2:
                parameters[1].grad = gradient.clone()
        own.step()
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)
    assert torch.equal(ours[2], start[2])
    assert not torch.equal(ours[1], start[1])
