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
from .descent import Setting, descend
from .public import ClassStarts, Divider, Learnt
from .tuning import Chosen

DIRECTIONS = 100
FLAT = 1e-8  # of the largest variance: less is rounding
CANDIDATES = (
    *(Setting(100, 0.1, variation, prior) for variation in (0.3, 1.0) for prior in (0.0, 0.1, 1.0)),
    *(Setting(100, 0.1, variation, detail=1.0) for variation in (0.01, 0.1)),  # for shallow features
    *(Setting(20, 0.1, variation) for variation in (0.3, 1.0)),
)


class Pixels:
    """Pixel optimisation with total variation."""

    name = "pixels"

    def __init__(self, candidates: Sequence[Setting] = CANDIDATES) -> None:
        self.chosen = Chosen(candidates)
        self.divide, self.learnt = Divider(), Learnt[Directions]()

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        public = self.divide(known)
        along = self.learnt(known, lambda: directions(public.learn, known.seed, DIRECTIONS))
        painter = PixelPainter(along, ClassStarts.of(known, public))
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
    real = lengths > FLAT * lengths.max()
    basis, lengths = basis[:, real], lengths[real]
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
