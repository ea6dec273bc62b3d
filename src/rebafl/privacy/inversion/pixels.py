"""Which pixels have the given feature? Those found by descent from the class mean, kept smooth by total variation.

Pixels move along the directions in which public pictures vary, each as far as they vary in it, and by themselves as far
as tuning allows: descent over plain pixels ends in noise that has the right feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.rng import generator
from .contract import Known, Reconstruct, Tick
from .descent import Chosen, ClassStarts, Setting, descend, divide

DIRECTIONS = 100
CANDIDATES = tuple(
    Setting(steps, 0.05, variation, detail=detail)
    for steps in (50, 150)
    for detail in (0.0, 0.3)
    for variation in (0.1, 0.3, 1.0)
)


class Pixels:
    """Pixel optimisation with total variation."""

    name = "pixels"

    def __init__(self, candidates: Sequence[Setting] = CANDIDATES) -> None:
        self.chosen = Chosen(candidates)
        self.learnt: tuple[Tensor, Directions] | None = None

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        public = divide(known)
        if self.learnt is None or self.learnt[0] is not known.pictures:
            self.learnt = known.pictures, directions(public.learn, known.seed, DIRECTIONS)
        painter = PixelPainter(self.learnt[1], ClassStarts.of(known, public))
        setting = self.chosen(known, public, painter, k, tick)
        return lambda means: descend(known, public.distance, painter, means, [setting] * len(means), tick)[0]


@dataclass(frozen=True)
class Directions:
    """The directions in which pictures vary most, each as long as they do, and how far pixels vary beside them."""

    along: Tensor
    beside: float


def directions(pictures: Tensor, seed: int, most: int) -> Directions:
    """Principal components, by a few rounds of subspace iteration."""
    flat = pictures[:: max(1, len(pictures) // 4000)].flatten(1)
    flat = flat - flat.mean(0)
    count = min(most, *flat.shape)
    start = generator(seed, "privacy inversion directions").standard_normal((flat.shape[1], count))
    basis = torch.from_numpy(start).to(flat.dtype)
    for _ in range(4):
        basis = torch.linalg.qr(flat.T @ (flat @ basis)).Q
    lengths = (flat @ basis).square().mean(0)
    beside = (flat.square().mean(0).sum() - lengths.sum()).clamp_min(0) / flat.shape[1]
    return Directions((basis * lengths.sqrt()).T.contiguous(), float(beside.sqrt()))


@dataclass(frozen=True)
class PixelPainter:
    directions: Directions
    starts: ClassStarts

    def start(self, means: Tensor) -> list[Tensor]:
        pictures = self.starts.nearest(means)
        return [pictures.new_zeros(len(means), len(self.directions.along)), pictures]

    def paint(self, parameters: Sequence[Tensor]) -> Tensor:
        along, pictures = parameters
        return pictures + (along @ self.directions.along).reshape(pictures.shape)

    def unlikely(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[0].square().mean(1)

    def speeds(self, setting: Setting) -> Sequence[float]:
        return 1.0, setting.detail * self.directions.beside
