"""How much have a client's noisy uploads given away? (ε, δ), composed over all rounds in which it took part.

Each upload is a Gaussian mechanism, or two: on prototypes and counts with noise of z₁ sensitivities, on the weights
with z₂, whether a client adds it to its own change or the server to the mean that the change is part of. Composed over
T uploads, chosen adaptively, they are exactly as private as one Gaussian mechanism with noise of 1/μ sensitivities,
μ² = T (1/z₁² + 1/z₂²) (Dong, Roth and Su, Gaussian differential privacy, 2022, corollary 3.3), for which

    δ(ε) = Φ(μ/2 − ε/μ) − exp(ε) Φ(−μ/2 − ε/μ)

(Balle and Wang, Improving the Gaussian mechanism, 2018, theorem 8). Nothing is approximated, and nothing is gained from
chance in who takes part: the server knows who does. A general accountant, which also covers subsampling, comes close to
this from above; tests compare with that of Opacus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ..training.protections import Protections


@dataclass(frozen=True)
class Accountant:
    """`rate` is the square of μ for one upload; `budget` the ε that no client may exceed, infinite if there is none."""

    rate: float
    delta: float
    budget: float = math.inf

    def epsilon(self, uploads: int) -> float:
        """What so many uploads of one client have given away."""
        return epsilon_of(math.sqrt(uploads * self.rate), self.delta)

    def allows(self, uploads: int) -> bool:
        """May a client that sent so many uploads send one more?"""
        return self.budget == math.inf or self.epsilon(uploads + 1) <= self.budget


def accountant_of(protect: Protections) -> Accountant | None:
    """None where no noise is added: then there is nothing to count."""
    rate = sum(1 / noise**2 for noise in (protect.noise, protect.update_noise, protect.central_noise) if noise)
    return Accountant(rate, protect.delta, protect.budget or math.inf) if rate else None


def delta_of(mu: float, epsilon: float) -> float:
    """δ(ε) of the Gaussian mechanism whose noise is 1/μ sensitivities."""
    first, second = _log_normal_cdf(mu / 2 - epsilon / mu), _log_normal_cdf(-mu / 2 - epsilon / mu)
    return math.exp(first) * -math.expm1(min(0.0, epsilon + second - first))


@lru_cache(maxsize=4096)
def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε that this δ allows, by bisection: δ falls as ε grows."""
    if mu == 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if delta_of(mu, middle) > delta else (low, middle)
    return high


def _log_normal_cdf(x: float) -> float:
    """log Φ(x), also where Φ itself is too small for a float."""
    if x > -20:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    square = x * x
    series = 1 - 1 / square + 3 / square**2 - 15 / square**3 + 105 / square**4
    return -square / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log(series)
