"""Which number stands for a whole run? Each measure is defined here once, on the accuracies of its rounds in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

TAIL = 10
"""Rounds at the end of a run that are averaged, since a single last round depends on who took part in it."""


def best(accuracy: Sequence[float]) -> float:
    """The highest of all rounds. It is chosen on the test set, so it is too good."""
    return max(accuracy)


def best_round(accuracy: Sequence[float]) -> int:
    """The first round that reaches the highest accuracy, counted from 1."""
    return 1 + accuracy.index(best(accuracy))


def last_ten(accuracy: Sequence[float]) -> float:
    """The mean of the last ten rounds; of all, where there are fewer: `tail_name` says so."""
    return fmean(accuracy[-TAIL:])


def last(accuracy: Sequence[float]) -> float:
    """That of the last round, which depends on who took part in it."""
    return accuracy[-1]


def tail_name(*lengths: int) -> str:
    """What `last_ten` is of runs with so many rounds, in words: runs with fewer than ten have no last ten."""
    shortest, longest = min(lengths), max(lengths)
    if shortest >= TAIL:
        return f"last {TAIL}"
    return f"last {shortest}" if shortest == longest else f"last {shortest} to {min(longest, TAIL)}"


def last_ten_std(accuracy: Sequence[float]) -> float:
    """The standard deviation of the last ten rounds."""
    return pstdev(accuracy[-TAIL:])


def second_half(accuracy: Sequence[float]) -> float:
    """The mean of the second half of the rounds."""
    return fmean(_second_half(accuracy))


def swing(accuracy: Sequence[float]) -> float:
    """The mean change from one round to the next, up or down, over the second half.

    A standard deviation would also count what is learned: that of a rising curve is large.
    """
    changes = [abs(after - before) for before, after in pairwise(_second_half(accuracy))]
    return fmean(changes) if changes else 0.0


def rounds_to(accuracy: Sequence[float], percent: float) -> int | None:
    """The first round with at least so much, counted from 1; None if there is none. Chosen on the test set, too."""
    return next((number for number, value in enumerate(accuracy, 1) if value >= percent), None)


def scored(accuracy: Sequence[float], every: int) -> list[float]:
    """Of a run that is scored every so many rounds, and in the first: only what was measured, not what was carried on.

    The other measures are taken of these.
    """
    return [value for number, value in enumerate(accuracy, 1) if is_scored(number, every)]


def is_scored(round: int, every: int) -> bool:
    return round == 1 or round % every == 0


def over_clients(accuracy: Sequence[float]) -> dict[str, float]:
    """Of accuracies of all clients: the mean, the mean of the worst tenth (at least one client), the std."""
    worst = sorted(accuracy)[: -(-len(accuracy) // 10)]
    return {"mean": fmean(accuracy), "worst_tenth": fmean(worst), "spread": pstdev(accuracy)}


OF_ACCURACY: dict[str, Callable[[Sequence[float]], float]] = {
    "best": best,
    "last": last,
    "last10": last_ten,
    "second_half": second_half,
    "swing": swing,
}
"""By name, how one number is made of the accuracies of all rounds."""


def _second_half(accuracy: Sequence[float]) -> Sequence[float]:
    return accuracy[len(accuracy) // 2 :]
