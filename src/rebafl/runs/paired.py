"""Are two methods different, or is it the seeds? Differences within the same seed, with an interval and a test.

Seeds share data, dropout and initial weights, so that a difference within a seed says more than two means side by side.
Differences are taken to be normal: Student's t, which needs no package besides Python's own mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeVar

Seed = TypeVar("Seed")

CONFIDENCE = 0.95
FEWEST = 2  # seeds, below which nothing can be said of how much a difference varies


@dataclass(frozen=True)
class Paired:
    """The mean difference over seeds that both have, its 95 % interval, and the chance of such a one by chance."""

    seeds: int
    difference: float
    low: float
    high: float
    p: float


def paired(ours: Mapping[Seed, float], theirs: Mapping[Seed, float]) -> Paired | None:
    """Ours minus theirs, by seed; None where they have too few seeds in common."""
    common = [seed for seed in ours if seed in theirs]
    if len(common) < FEWEST:
        return None
    differences = [ours[seed] - theirs[seed] for seed in common]
    mean, error = fmean(differences), stdev(differences) / math.sqrt(len(common))
    reach = student_quantile((1 + CONFIDENCE) / 2, len(common) - 1) * error
    p = student_two_sided(mean / error, len(common) - 1) if error else float(mean == 0)
    return Paired(len(common), mean, mean - reach, mean + reach, p)


def student_two_sided(t: float, freedom: int) -> float:
    """The chance that Student's t with so many degrees of freedom is at least as far from zero."""
    return _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(probability: float, freedom: int) -> float:
    """The value that t stays below with this probability, at least one half."""
    low, high = 0.0, 1.0
    while student_two_sided(high, freedom) > 2 * (1 - probability):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if student_two_sided(middle, freedom) > 2 * (1 - probability):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction, which converges fast on one of the sides."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front / _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d₁/(1 + d₂/(1 + …)), summed up from its far end."""
    value = 1.0
    for m in range(300, 0, -1):
        half = m // 2
        if m % 2:
            d = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            d = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        value = 1 + d / value
    return value
