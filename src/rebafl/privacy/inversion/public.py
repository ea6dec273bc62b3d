"""What do public pictures tell an attacker? How features vary, where classes lie, and examples to tune attacks on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ...base.errors import UserError
from ...base.rng import generator
from .contract import Known

T = TypeVar("T")
FLOOR = 1e-2
"""Directions in which public features vary less than this part of the most are not stretched further."""
MOST_WHITENED = 512
MOST_TUNING = 1000
EXAMPLES = 24


@dataclass(frozen=True)
class Distance:
    """Squared distance of features, stretched by how public features vary: 1 on average between them and their mean."""

    mean: Tensor
    stretch: Tensor
    """A matrix, or one number for features of too many dimensions."""

    def __call__(self, found: Tensor, wanted: Tensor) -> Tensor:
        gap = found - wanted
        return (gap @ self.stretch if self.stretch.dim() else gap * self.stretch).square().mean(1)


def distance(features: Tensor) -> Distance:
    """By the features of public pictures."""
    mean = features.mean(0)
    around = (features - mean).to(torch.float64)
    if features.shape[1] > MOST_WHITENED:
        spread = around.square().mean().sqrt().clamp_min(1e-12)
        return Distance(mean, (1 / spread).to(features.dtype))
    values, vectors = torch.linalg.eigh(around.T @ around / len(around))
    stretched = values.clamp_min(max(FLOOR * float(values[-1]), 1e-12))
    unit = (values / stretched).mean().sqrt().clamp_min(1e-6)
    return Distance(mean, (vectors / (stretched.sqrt() * unit)).to(features.dtype))


@dataclass(frozen=True)
class Division:
    """Public pictures divided once, whatever k is: to learn from, and to choose settings on."""

    learn: Tensor
    learn_labels: Tensor
    tune: Tensor
    tune_labels: Tensor

    def examples(self, k: int, seed: int) -> Tensor:
        """Places of k pictures of one class among those to choose settings on, one row for each example."""
        enough = [int(c) for c in torch.unique(self.tune_labels) if int((self.tune_labels == c).sum()) >= k]
        if not enough:
            raise UserError(
                f"No class has {2 * k} public pictures, so reconstruction from means of {k} cannot be tuned; ask for a "
                "smaller k."
            )
        random = generator(seed, "privacy inversion examples", k)
        rows = []
        for number in range(EXAMPLES):
            of_class = torch.nonzero(self.tune_labels == enough[number % len(enough)])[:, 0].numpy()
            rows.append(torch.from_numpy(random.permutation(of_class)[:k]))
        return torch.stack(rows)


@dataclass(frozen=True)
class Public(Division):
    """Those, and how their features vary under the model attacked."""

    distance: Distance


class Learnt(Generic[T]):
    """What does not depend on the model attacked, made once: kept while public pictures are the very same tensor."""

    def __init__(self) -> None:
        self.made: tuple[Tensor, int, T] | None = None

    def __call__(self, known: Known, make: Callable[[], T]) -> T:
        if self.made is None or self.made[0] is not known.pictures or self.made[1] != known.seed:
            self.made = known.pictures, known.seed, make()
        return self.made[2]


class Divider:
    """Divides the public pictures once, and looks at some of them with each model."""

    def __init__(self) -> None:
        self.learnt: Learnt[Division] = Learnt()

    def __call__(self, known: Known) -> Public:
        parts = self.learnt(known, lambda: _divide(known))
        some = parts.learn[:: max(1, len(parts.learn) // 2000)]
        return Public(**vars(parts), distance=distance(features_of(known, some)))


def _divide(known: Known) -> Division:
    learn, tune = [], []
    for label in torch.unique(known.labels):
        places = torch.nonzero(known.labels == label)[:, 0].numpy()
        order = torch.from_numpy(generator(known.seed, "privacy inversion public", 0, int(label)).permutation(places))
        cut = min(MOST_TUNING, len(order) // 2)
        tune.append(order[:cut])
        learn.append(order[cut:])
    some, others = torch.cat(learn).sort().values, torch.cat(tune).sort().values
    return Division(known.pictures[some], known.labels[some], known.pictures[others], known.labels[others])


def features_of(known: Known, pictures: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([known.features(part) for part in torch.split(pictures, 500)])


@dataclass(frozen=True)
class ClassStarts:
    """The mean public picture of each class, and where its feature lies: a mean's class is the nearest."""

    features: Tensor
    pictures: Tensor
    public: Public

    @staticmethod
    def of(known: Known, public: Public) -> ClassStarts:
        sets = [public.learn[public.learn_labels == label] for label in torch.unique(public.learn_labels)]
        means = [features_of(known, pictures[:200]).mean(0) for pictures in sets]
        return ClassStarts(torch.stack(means), torch.stack([pictures.mean(0) for pictures in sets]), public)

    def nearest(self, means: Tensor) -> Tensor:
        apart = torch.stack([self.public.distance(means, feature) for feature in self.features])
        return self.pictures[apart.argmin(0)]
