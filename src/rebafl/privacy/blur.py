"""What does an attacker know of a mean that was clipped and blurred? All but the draws: the bound, and the noise.

With `protect.clip` C and `protect.noise` z, a client of k images sends (S + √2 z C N) / n where S is the sum of its
clipped features, N is normal, and n is k + √2 z N' rounded. Around the class's mean μ that has the covariance
(Σ + (2 z² C² / k) I + (2 z² / k) μμᵀ) / k, to first order in the noise on the count. With it in the place of Σ / k, the
tracing score is again the log-likelihood ratio, so that an attacker who ignores the noise does not make it look better
than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..training.protections import PROTOTYPE_SENSITIVITY, Protections
from .measures import Numbers


@dataclass(frozen=True)
class Blur:
    """How features become a mean: the bound on each (0: none), and the noise in units of one image's weight."""

    clip: float = 0.0
    noise: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the noise on a count; on each entry of a sum it is `clip` times that."""
        return PROTOTYPE_SENSITIVITY * self.noise

    def clipped(self, features: Tensor | Numbers) -> Numbers:
        rows = np.asarray(features, dtype=np.float64)
        if not self.clip:
            return rows
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        out: Numbers = rows * (self.clip / np.maximum(lengths, self.clip))
        return out

    def mean(self, rows: Numbers, random: np.random.Generator) -> Numbers:
        """What a client with these clipped features would send."""
        if not self.noise:
            out: Numbers = rows.mean(0)
            return out
        total = rows.sum(0) + self.clip * self.spread * random.standard_normal(rows.shape[1])
        count = max(1.0, np.round(len(rows) + self.spread * random.standard_normal()))
        out = total / count
        return out

    def sharpening(self, mean: Numbers, whiten: Numbers, k: int, holders: int) -> Numbers | None:
        """The map to coordinates in which images and noise together have unit covariance; None without noise.

        `mean` is that of the class, `whiten` the map to coordinates in which images alone have it; `holders` clients
        with k images together add noise.
        """
        if not self.noise:
            return None
        variance = holders * self.spread**2 / k
        along = mean @ whiten
        noise = variance * (self.clip**2 * whiten.T @ whiten + np.outer(along, along))
        values, vectors = np.linalg.eigh(np.eye(len(noise)) + noise)
        out: Numbers = (vectors / np.sqrt(values)) @ vectors.T
        return out


EXACT = Blur()


def blur_of(protect: Protections) -> Blur:
    return Blur(protect.clip, protect.noise)
