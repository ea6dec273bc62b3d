"""How is a picture sought whose feature meets a given mean? By descent, for many means at once, each as if alone.

What a picture is painted with (pixels, a generator's weights, a decoder's latents) is each attack's own; what they
share is here: the distance of features, the descent, and how its settings are chosen on means of public pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from ...base.errors import UserError
from ...base.rng import generator
from .contract import Known, Tick

AT_ONCE = 100
"""Rows of one descent: few enough that what a step computes stays near the processor."""
FLOOR = 1e-3
"""Directions in which public features vary less than this part of the most are not stretched further."""
MOST_WHITENED = 512
MOST_TUNING = 1000
EXAMPLES = 20


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
    values = values.clamp_min(max(FLOOR * float(values[-1]), 1e-12))
    return Distance(mean, (vectors / values.sqrt()).to(features.dtype))


@dataclass(frozen=True)
class Public:
    """Public pictures divided once, whatever k is: to learn from, and to choose settings on; and how features vary."""

    learn: Tensor
    learn_labels: Tensor
    tune: Tensor
    tune_labels: Tensor
    distance: Distance

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


def divide(known: Known) -> Public:
    learn, tune = [], []
    for label in torch.unique(known.labels):
        places = torch.nonzero(known.labels == label)[:, 0].numpy()
        order = torch.from_numpy(generator(known.seed, "privacy inversion public", 0, int(label)).permutation(places))
        cut = min(MOST_TUNING, len(order) // 2)
        tune.append(order[:cut])
        learn.append(order[cut:])
    some, others = torch.cat(learn).sort().values, torch.cat(tune).sort().values
    seen = known.pictures[some[:: max(1, len(some) // 2000)]]
    return Public(
        known.pictures[some],
        known.labels[some],
        known.pictures[others],
        known.labels[others],
        distance(features_of(known, seen)),
    )


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
        descent = _Descent(known, apart, painter, means[some], settings[some])
        pictures, loss = descent.run()
        found.append(pictures)
        losses.append(loss)
        tick(f"{min(done + AT_ONCE, len(means))} of {len(means)} pictures sought")
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
        self.parameters = [start.detach().clone().requires_grad_() for start in painter.start(means)]

    def loss(self) -> Tensor:
        pictures = self.painter.paint(self.parameters)
        outside = (pictures - pictures.clamp(0, 1)).square().mean((1, 2, 3))
        rough = self.variation * total_variation(pictures)
        unlikely = self.prior * self.painter.unlikely(self.parameters)
        return self.apart(self.known.features(pictures), self.means) + rough + unlikely + outside

    def run(self) -> tuple[Tensor, Tensor]:
        first, second = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        for step in range(self.steps):
            gradients = torch.autograd.grad(self.loss().sum(), self.parameters)
            slower = 0.5 * (1 + math.cos(math.pi * step / self.steps))
            with torch.no_grad():
                for p, g, m, v, rate in zip(self.parameters, gradients, first, second, self.rates, strict=True):
                    m.lerp_(g, 0.1)
                    v.lerp_(g.square(), 0.01)
                    move = (m / (1 - 0.9 ** (step + 1))) / ((v / (1 - 0.99 ** (step + 1))).sqrt() + 1e-10)
                    p -= slower * rate.reshape(-1, *[1] * (p.dim() - 1)) * move
        with torch.no_grad():
            return self.painter.paint(self.parameters).clamp(0, 1), self.loss()


def choose(
    known: Known, public: Public, painter: Painter, k: int, candidates: Sequence[Setting], tick: Tick
) -> Setting:
    """The candidate whose pictures, from means of k public pictures, are most like those k pictures (SSIM)."""
    places = public.examples(k, known.seed)
    means = torch.stack([features_of(known, public.tune[row]).mean(0) for row in places])
    scores: dict[Setting, float] = {}
    for steps in sorted({setting.steps for setting in candidates}):
        some = [setting for setting in candidates if setting.steps == steps]
        rows = [setting for setting in some for _ in means]
        found, _ = descend(known, public.distance, painter, means.repeat(len(some), 1), rows, tick)
        for setting, pictures in zip(some, torch.split(found, len(means)), strict=True):
            scores[setting] = similarity(pictures, public.tune, places)
    return max(scores, key=lambda setting: scores[setting])


def similarity(pictures: Tensor, originals: Tensor, places: Tensor) -> float:
    """The mean SSIM with the originals at these places, of which ten for each picture are enough."""
    few = places[:, :10]
    alike = structural_similarity_index_measure(
        pictures.repeat_interleave(few.shape[1], 0), originals[few.flatten()], data_range=1.0
    )
    assert isinstance(alike, Tensor)
    return float(alike)


class Chosen:
    """Settings by k and kind of features: chosen once, with the first model attacked so, and kept for others."""

    def __init__(self, candidates: Sequence[Setting]) -> None:
        self.candidates = candidates
        self.kept: dict[tuple[int, int, int], Setting] = {}

    def __call__(self, known: Known, public: Public, painter: Painter, k: int, tick: Tick) -> Setting:
        key = (k, len(public.distance.mean), known.seed)
        if key not in self.kept:
            self.kept[key] = choose(known, public, painter, k, self.candidates, tick)
        return self.kept[key]
