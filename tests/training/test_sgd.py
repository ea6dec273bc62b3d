"""Is each optimiser torch's own, to the bit?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rebafl import UserError, make_settings
from rebafl.algorithms.interface import Training
from rebafl.training.sgd import make_optimiser


@pytest.mark.parametrize("weight_decay", [0.0, 5e-4])
@pytest.mark.parametrize(
    ("torchs", "arguments"),
    [
        (torch.optim.SGD, {"momentum": 0.0}),
        (torch.optim.SGD, {"momentum": 0.5}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"betas": (0.8, 0.9)}),
        (torch.optim.AdamW, {}),
    ],
)
def test_it_is_torchs_to_the_bit(torchs: Any, arguments: dict[str, Any], weight_decay: float) -> None:
    """Over several steps, with a parameter that gets a gradient only now and then, and one that never does."""
    random = torch.Generator().manual_seed(3)
    start = [torch.randn(4, 3, generator=random) for _ in range(3)]
    ours, theirs = ([nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    training = Training(lr=0.1, weight_decay=weight_decay, optimizer=torchs.__name__.lower(), **arguments)
    own = make_optimiser(ours, training)
    reference = torchs(theirs, lr=0.1, weight_decay=weight_decay, foreach=False, **arguments)
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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"nesterov": True, "momentum": 0.0}, "set training.momentum"),
        ({"nesterov": True, "optimizer": "adam"}, "no other optimizer"),
        ({"schedule": "cosine"}, "needs training.schedule_rounds"),
        ({"schedule": "step"}, "needs training.schedule_rounds"),
        ({"epochs": 2, "epochs_least": 3}, "lower it"),
    ],
)
def test_what_does_not_fit_together_is_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        make_settings({"training": words})
