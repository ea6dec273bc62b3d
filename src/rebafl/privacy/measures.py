"""How well does a score tell members from non-members, how sure is that, and what does theory say of means?

An exact mean of k feature vectors with d independent Gaussian coordinates is told from others by the tracing score with
AUC = Φ(√(d/2k)) and, at a false positive rate α, with a true positive rate of Φ(√(d/k) − Φ⁻¹(1−α)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ..base.errors import UserError
from ..base.rng import generator

Numbers = npt.NDArray[np.float64]
NORMAL = NormalDist()
FPR = 0.01
CONFIDENCE = 0.95
RESAMPLES = 2000


def auc(members: Numbers, others: Numbers) -> float:
    """The chance that a member scores higher than a non-member; equal scores count one half."""
    ordered = np.sort(others)
    below, up_to = np.searchsorted(ordered, members, "left"), np.searchsorted(ordered, members, "right")
    return float((below + up_to).mean() / (2 * len(ordered)))


def tpr_at(members: Numbers, others: Numbers, fpr: float = FPR) -> float:
    """The share of members above the score that at most a share `fpr` of the non-members exceed."""
    allowed = int(fpr * len(others))
    threshold = np.sort(others)[len(others) - 1 - allowed]
    return float((members > threshold).mean())


@dataclass(frozen=True)
class Estimate:
    """A mean over clients with its 95% interval, and what it is the mean of."""

    value: float
    low: float
    high: float
    units: int
    values: tuple[float, ...] = ()

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high


def estimate(by_unit: Sequence[float], seed: int = 0, shared: int = 0) -> Estimate:
    """The mean over units (clients), and its interval by bootstrap over them.

    Percentiles of few units are too narrow; they are widened by √(n/(n−1)) and by Student's t in place of the normal.
    Units that are held against the same `shared` non-members err together: an AUC has their variance, at most 1/12 of
    one each, on top.
    """
    values = np.asarray(by_unit, dtype=np.float64)
    count = len(values)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    centre = float(values.mean())
    if count == 1:
        return Estimate(centre, 0.0, 1.0, 1, (centre,))
    drawn = generator(seed, "privacy bootstrap").integers(count, size=(RESAMPLES, count))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[drawn].mean(1), [tail, 1 - tail])
    wider = math.sqrt(count / (count - 1)) * _student(count - 1) / NORMAL.inv_cdf(1 - tail)
    together = NORMAL.inv_cdf(1 - tail) / math.sqrt(12 * shared) if shared else 0.0
    down, up = (
        math.hypot(wider * (centre - float(low)), together),
        math.hypot(wider * (float(high) - centre), together),
    )
    return Estimate(centre, max(0.0, centre - down), min(1.0, centre + up), count, tuple(values.tolist()))


def _student(freedom: int) -> float:
    """The quantile of Student's t, by the expansion of Cornish and Fisher."""
    z = NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def theory_auc(dimensions: float, k: float) -> float:
    return NORMAL.cdf(math.sqrt(dimensions / (2 * k)))


def theory_tpr(dimensions: float, k: float, fpr: float = FPR) -> float:
    return NORMAL.cdf(math.sqrt(dimensions / k) - NORMAL.inv_cdf(1 - fpr))


def dimensions_of(tpr: float, k: float, fpr: float = FPR) -> float:
    """How many independent Gaussian coordinates would be traced as well as this."""
    gap = NORMAL.inv_cdf(min(max(tpr, 1e-6), 1 - 1e-6)) + NORMAL.inv_cdf(1 - fpr)
    return k * max(0.0, gap) ** 2


@dataclass(frozen=True)
class Risk:
    """What a user accepts: at this false positive rate no more than this true positive rate."""

    tpr: float
    fpr: float

    def least_k(self, dimensions: float) -> float:
        """The k from which on theory keeps it; infinite where even guessing breaks it."""
        gap = NORMAL.inv_cdf(self.tpr) + NORMAL.inv_cdf(1 - self.fpr)
        return dimensions / gap**2 if gap > 0 else math.inf


def read_risk(text: str) -> Risk:
    """`tpr=0.05@fpr=0.01`."""
    match = re.fullmatch(r"tpr=([0-9.eE+-]+)@fpr=([0-9.eE+-]+)", text.strip())
    try:
        risk = Risk(float(match[1]), float(match[2])) if match else None
    except ValueError:
        risk = None
    if risk is None or not 0 < risk.fpr < risk.tpr < 1:
        raise UserError(
            f"--risk {text!r} is not of the form tpr=0.05@fpr=0.01 with 0 < fpr < tpr < 1; "
            "guessing alone has a tpr as large as the fpr."
        )
    return risk
