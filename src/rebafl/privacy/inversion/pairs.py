"""What are attacks that are trained trained on? Means of k public pictures' features, and those pictures' mean.

One of the members as the aim would have the same best answer under a squared error, since E[x₁ | p] equals
E[(x₁+…+x_k)/k | p] when members are drawn alike, but a noisier way to it.

Means of k vary √k times less than single pictures. They are scaled by √k, so that what was learned for one k is a good
start for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ...base.rng import generator
from ...population.partition import Indices
from .contract import Known
from .line import MOST_COMPONENTS, Components, Line, components, features_of, line

BATCH = 32
TUNING = 150


@dataclass(frozen=True)
class Batch:
    """Means of k, scaled by √k, as differences from the class: what the line finds, and what is to be found."""

    coefficients: Tensor
    """Of unit size."""
    wanted: Tensor
    lift: Callable[[Tensor], Tensor]
    """From coefficients of unit size to pictures."""

    @property
    def straight(self) -> Tensor:
        return self.lift(self.coefficients)


@dataclass(frozen=True)
class Pairs:
    """Public pictures beside what the straight line finds in their features, from which means of k are drawn."""

    known: Known
    space: Components
    straight: Line
    coefficients: Tensor
    pictures: Tensor
    """Less the mean picture."""

    def batches(self, k: int, count: int) -> Iterator[Batch]:
        """To train on; a fifth of the pictures is left out, to tune with."""
        random = generator(self.known.seed, f"inversion means of {k}")
        for _ in range(count):
            yield self._drawn([self._group(random, k, tuning=False) for _ in range(BATCH)])

    def tuning(self, k: int) -> tuple[Batch, list[Indices]]:
        """To tune with: means of k pictures that were not trained on, if there are enough, and which these are."""
        random = generator(self.known.seed, f"inversion tuning of {k}")
        groups = [self._group(random, k, tuning=True) for _ in range(TUNING)]
        return self._drawn(groups), groups

    def _group(self, random: np.random.Generator, k: int, tuning: bool) -> Indices:
        """Some k pictures' places."""
        count, apart = len(self.pictures), len(self.pictures) // 5
        if not tuning:
            return apart + random.choice(count - apart, size=min(k, count - apart), replace=False, shuffle=False)
        return random.choice(apart if 4 * k <= apart else count, size=min(k, count // 2), replace=False, shuffle=False)

    def _drawn(self, groups: Sequence[Indices]) -> Batch:
        """Means of groups that are all of one size, scaled."""
        size, flat = len(groups[0]), self.pictures.flatten(1)
        rows = torch.from_numpy(np.stack(groups))
        if size <= 16:
            means, coefficients = flat[rows].sum(1), self.coefficients[rows].sum(1)
        else:  # the same by a product, which needs no copy of all the pictures
            weights = torch.zeros(len(groups), len(flat)).scatter_(1, rows, 1.0)
            means, coefficients = weights @ flat, weights @ self.coefficients
        scale = 1 / math.sqrt(size)
        return self.batch(scale * coefficients, scale * means.reshape(-1, *self.pictures.shape[1:]))

    def batch(self, coefficients: Tensor, wanted: Tensor) -> Batch:
        spread = self.straight.spread
        return Batch(coefficients / spread, wanted, lambda unit: self.space.deviations(unit * spread))

    def attacked(self, means: Tensor, k: int) -> Batch:
        """Means of private pictures, of which nothing more is known."""
        coefficients = math.sqrt(k) * self.straight(means)
        return self.batch(coefficients, torch.empty(0))

    def pictures_from(self, deviations: Tensor, k: int) -> Tensor:
        return (self.space.mean + deviations / math.sqrt(k)).clamp(0, 1)


@dataclass
class Spaces:
    """Components of pictures, computed once for each set of pictures and each number of them."""

    made: list[tuple[Tensor, int, Components]] = field(default_factory=list)

    def of(self, known: Known, most: int) -> Components:
        for pictures, count, space in self.made:
            if pictures is known.pictures and count == most:
                return space
        space = components(known.pictures, most, known.seed)
        self.made.append((known.pictures, most, space))
        return space


def pairs(known: Known, spaces: Spaces) -> Pairs:
    features = features_of(known)
    space = spaces.of(known, min(features.shape[1], MOST_COMPONENTS))
    straight = line(features, space.of(known.pictures), known.seed)
    return Pairs(known, space, straight, straight(features), known.pictures - space.mean)
