"""What is an audit asked for, and how is leakage against k told? Shared by audits of runs and of own data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from . import linking
from .inversion.tools import Tool, usual_tools
from .measures import Risk, dimensions_of, theory_auc, theory_tpr
from .tracing import KS, Leakage, Score, synthetic, tracing_score

SERVER, CLIENT = "server", "client"
Tick = Callable[[int, int, str], None]
"""Steps done, steps in all, and what was done last."""
USUAL_RISK = Risk(0.05, 0.01)


NO_PICTURES = "reconstruction of images"
"""What is missing where it was not asked for, or where samples are no images."""


@dataclass(frozen=True)
class Plan:
    """What an audit is asked for. `score` is the tracing attack itself, so that tests can sabotage it."""

    rounds: tuple[int, ...] = ()
    ks: tuple[int, ...] = KS
    risk: Risk = USUAL_RISK
    seed: int = 0
    score: Score = tracing_score
    pictures: bool = True
    """Reconstruct images, where samples are such."""
    tools: Callable[[], list[Tool]] = usual_tools
    similarities: Mapping[str, linking.Similarity] = field(default_factory=lambda: linking.SIMILARITIES)


@dataclass
class Steps:
    """How far the audit is."""

    of: int
    tick: Tick
    done: int = 0

    def __call__(self, text: str) -> None:
        self.done += 1
        self.tick(min(self.done, self.of), self.of, text)


@dataclass(frozen=True)
class Curve:
    """Leakage against k, for one attacker in one round, or over several."""

    attacker: str
    round: str
    points: tuple[Leakage, ...]

    def at(self, k: int) -> Leakage | None:
        return next((point for point in self.points if point.k == k), None)

    def dimensions(self, fpr: float) -> float:
        """As how many independent Gaussian coordinates the features behave, at the most: fitted to the TPR."""
        told = [p for p in self.points if p.tpr.value > 1.5 * fpr and p.auc.value < 0.99 and p.auc.low > 0.5]
        return max((dimensions_of(p.tpr.value, p.k, fpr) for p in told), default=0.0)


USUAL = Plan()


def plain_curve(curve: Curve, dimensions: int, risk: Risk) -> dict[str, Any]:
    points = [
        {
            **asdict(point),
            "theory_auc": theory_auc(dimensions, point.k),
            "theory_tpr": theory_tpr(dimensions, point.k, risk.fpr),
        }
        for point in curve.points
    ]
    return {
        "attacker": curve.attacker,
        "round": curve.round,
        "points": points,
        "effective_dimensions": curve.dimensions(risk.fpr),
    }


def known_answers(dimensions: int, plan: Plan) -> list[dict[str, Any]]:
    """The tracing code on data whose answer is known; dimensions are bounded, so that it takes seconds."""
    d = min(dimensions, 64)
    rows = []
    for k in (10, 50, 100):
        point = synthetic(d, k, clients=8, seed=plan.seed, score=plan.score)
        known = theory_auc(d, k)
        rows.append(
            {"dimensions": d, "k": k, "auc": asdict(point.auc), "theory": known, "gap": point.auc.value - known}
        )
    return rows


def least_k(risk: Risk, curves: Sequence[Curve], dimensions: int) -> dict[str, Any]:
    """From which k on the risk is kept: by theory, and by the worst round's curve."""
    effective = max((curve.dimensions(risk.fpr) for curve in curves), default=0.0)
    measured = risk.least_k(effective) if effective else math.nan
    kept = [
        min((p.k for p in curve.points if all(q.tpr.high <= risk.tpr for q in curve.points if q.k >= p.k)), default=0)
        for curve in curves
    ]
    theory = risk.least_k(dimensions)
    return {
        "tpr": risk.tpr,
        "fpr": risk.fpr,
        "k": math.ceil(measured if effective else theory),
        "k_by": "the measured curves" if effective else "theory",
        "k_theory": math.ceil(theory),
        "k_seen_kept": max(kept, default=0) if kept and all(kept) else None,
        "effective_dimensions": effective,
    }
