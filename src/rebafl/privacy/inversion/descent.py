"""How is a picture sought whose feature meets a given mean? By descent, for many means at once, each as if alone.

What a picture is painted with (pixels, a generator's weights, a decoder's latents) is each attack's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .contract import Known, Tick
from .public import Distance

AT_ONCE = 100
"""Rows of one descent: few enough that what a step computes stays near the processor."""
TOLD_EVERY = 50  # steps


@dataclass(frozen=True)
class Setting:
    """How far and how fast is descended, and how much smoothness (total variation) counts beside the feature."""

    steps: int
    rate: float
    variation: float
    prior: float = 0.0
    """How much it counts that the painter's own prior finds the picture likely."""
    detail: float = 0.0
    """How fast the painter's finest parts move beside the others."""


class Painter(Protocol):
    """What pictures are painted with: rows of parameters, and the picture that each row gives."""

    def start(self, means: Tensor) -> list[Tensor]:
        """Parameters to start from, one row for each mean; a row depends on its mean only."""

    def paint(self, parameters: Sequence[Tensor]) -> Tensor:
        """Pictures; numbers below 0 or above 1 are allowed on the way."""

    def unlikely(self, parameters: Sequence[Tensor]) -> Tensor:
        """For each row how unlikely its parameters are, 0 for the likeliest."""

    def speeds(self, setting: Setting) -> Sequence[float]:
        """How fast each of the parameters moves, as a multiple of the rate."""


def total_variation(pictures: Tensor) -> Tensor:
    """The mean absolute difference of neighbours, down and across, for each picture."""
    down = (pictures[..., 1:, :] - pictures[..., :-1, :]).abs().mean((1, 2, 3))
    return down + (pictures[..., :, 1:] - pictures[..., :, :-1]).abs().mean((1, 2, 3))


def descend(
    known: Known, apart: Distance, painter: Painter, means: Tensor, settings: Sequence[Setting], tick: Tick
) -> tuple[Tensor, Tensor]:
    """The pictures found, one for each mean and its own setting, and what is left of their losses.

    All settings have the same number of steps.
    """
    found, losses = [], []
    for done in range(0, len(means), AT_ONCE):
        some = slice(done, done + AT_ONCE)
        which = f"pictures {done + 1} to {min(done + AT_ONCE, len(means))} of {len(means)} sought"
        pictures, loss = _Descent(known, apart, painter, means[some], settings[some]).run(which, tick)
        found.append(pictures)
        losses.append(loss)
    return torch.cat(found), torch.cat(losses)


class _Descent:
    """Adam, whose every number moves by itself, so that rows do not meet; the rate falls to 0 along a cosine."""

    def __init__(
        self, known: Known, apart: Distance, painter: Painter, means: Tensor, settings: Sequence[Setting]
    ) -> None:
        self.known, self.apart, self.painter, self.means = known, apart, painter, means
        self.steps = settings[0].steps
        self.variation, self.prior = (
            torch.tensor([getattr(setting, name) for setting in settings]) for name in ("variation", "prior")
        )
        self.rates = torch.tensor([[s.rate * speed for speed in painter.speeds(s)] for s in settings]).T
        moves = [bool(rate.any()) for rate in self.rates]
        starts = [start.detach().clone() for start in painter.start(means)]
        self.parameters = [start.requires_grad_(some) for start, some in zip(starts, moves, strict=True)]

    def loss(self) -> Tensor:
        pictures = self.painter.paint(self.parameters)
        outside = (pictures - pictures.clamp(0, 1)).square().mean((1, 2, 3))
        rough = self.variation * total_variation(pictures)
        unlikely = self.prior * self.painter.unlikely(self.parameters)
        return self.apart(self.known.features(pictures), self.means) + rough + unlikely + outside

    def run(self, which: str, tick: Tick) -> tuple[Tensor, Tensor]:
        moving = [(p, rate) for p, rate in zip(self.parameters, self.rates, strict=True) if p.requires_grad]
        state = [
            (p, rate.reshape(-1, *[1] * (p.dim() - 1)), torch.zeros_like(p), torch.zeros_like(p)) for p, rate in moving
        ]
        for step in range(self.steps):
            gradients = torch.autograd.grad(self.loss().sum(), [p for p, _ in moving])
            faded, faded_squares = 1 - 0.9 ** (step + 1), 1 - 0.99 ** (step + 1)
            slower = 0.5 * (1 + math.cos(math.pi * step / self.steps)) / faded
            with torch.no_grad():
                for (p, rate, mean, square), gradient in zip(state, gradients, strict=True):
                    mean.lerp_(gradient, 0.1)
                    square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
                    size = square.sqrt().div_(math.sqrt(faded_squares)).add_(1e-8)
                    p -= (mean / size).mul_(slower * rate)
            if step % TOLD_EVERY == TOLD_EVERY - 1 or step == self.steps - 1:
                tick(f"{which}: step {step + 1} of {self.steps}")
        with torch.no_grad():
            return self.painter.paint(self.parameters).clamp(0, 1), self.loss()
