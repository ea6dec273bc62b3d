"""Did a claim hold? Decided from finished cells by rules written down here, the same for every claim.

A pair is compared on the seeds that both have, under each condition, or across the two that are named. The mean
difference counts if it is larger than the claim's threshold (half a point of accuracy unless it says otherwise) and,
over several seeds, larger than its standard error. A claim held if every pair did; it did not hold if one clearly did
the opposite; else it is too close, or, while pairs are missing, partly run or not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from .items import AT, EVERY, OTHERS, Claim, Item
from .results import Result

HELD, FAILED, CLOSE, PARTLY, NOT_RUN = "held", "did not hold", "too close", "partly run", "not run"
DECISIONS = (HELD, FAILED, CLOSE, PARTLY, NOT_RUN)
Lookup = Callable[[str, str], Mapping[int, Result]]
"""Method and condition to results by seed."""
Side = tuple[str, str]
"""A method under a condition."""


@dataclass(frozen=True)
class Verdict:
    decision: str
    evidence: str
    otherwise: str = ""  # what another measure decides, if not the same


@dataclass(frozen=True)
class Comparison:
    """One pair: its differences, one for each common seed."""

    first: Side
    second: Side
    differences: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.differences)

    @property
    def error(self) -> float:
        count = len(self.differences)
        return stdev(self.differences) / count**0.5 if count > 1 else 0.0

    def decision(self, claim: Claim) -> str:
        if not self.differences:
            return NOT_RUN
        value = self.mean + claim.slack
        if claim.slack:  # up to there it still counts
            return HELD if value >= 0 else FAILED
        if abs(value) <= max(claim.threshold, self.error):
            return CLOSE
        return HELD if value > 0 else FAILED

    def __str__(self) -> str:
        (first, here), (second, there) = self.first, self.second
        error = f" ± {self.error:.2g}" if self.error else ""
        value = f"{_short(self.mean)}{error}"
        if here == there:
            return f"{here}: {first} − {second} = {value}"
        return f"{first} ({here}) − {second} ({there}) = {value}"


def _short(value: float) -> str:
    """Points of accuracy with two decimals; what is smaller with three digits."""
    return f"{value:+.2f}" if abs(value) >= 0.05 or value == 0 else f"{value:+.3g}"


def judge(item: Item, claim: Claim, results: Lookup) -> Verdict:
    if claim.ratio:
        return _judge_ratio(item, claim, results)
    found = [
        Comparison(first, second, _differences(claim.measure, results(*first), results(*second)))
        for first, second in _pairs(item, claim)
    ]
    return Verdict(_together([each.decision(claim) for each in found]), _evidence(found))


def _together(decisions: Sequence[str]) -> str:
    if FAILED in decisions:
        return FAILED
    if NOT_RUN in decisions:
        return NOT_RUN if set(decisions) == {NOT_RUN} else PARTLY
    return CLOSE if CLOSE in decisions else HELD


def _pairs(item: Item, claim: Claim) -> Iterator[tuple[Side, Side]]:
    for condition in claim.where or item.conditions:
        for first, second in claim.pairs:
            if AT not in first:
                rivals = [m for m in item.methods if m != first] if second == OTHERS else [second]
                yield from (((first, condition), (rival, condition)) for rival in rivals)
    for pair in claim.pairs:
        if AT in pair[0]:
            (first, here), (second, there) = (side.split(AT) for side in pair)
            for method in item.methods if first == EVERY else [first]:
                yield (method, here), (method if second == EVERY else second, there)


def _differences(measure: str, first: Mapping[int, Result], second: Mapping[int, Result]) -> tuple[float, ...]:
    seeds = sorted(first.keys() & second.keys())
    return tuple(first[seed].measure(measure) - second[seed].measure(measure) for seed in seeds)


def _evidence(found: list[Comparison]) -> str:
    """The narrowest difference under each condition: what decides."""
    run = [each for each in found if each.differences]
    if not run:
        return ""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in run:
        groups.setdefault((each.first[1], each.second[1]), []).append(each)
    parts = [str(min(group, key=lambda each: each.mean)) for group in groups.values()]
    seeds = max(len(each.differences) for each in run)
    parts += [f"{len(found) - len(run)} of {len(found)} comparisons not run"] if len(run) < len(found) else []
    return "; ".join(parts) + (f" ({seeds} seeds, ± standard error)" if seeds > 1 else "")


def _judge_ratio(item: Item, claim: Claim, results: Lookup) -> Verdict:
    assert claim.ratio is not None
    first, second = claim.ratio
    ratios = {}
    for condition in item.conditions:
        a, b = results(first, condition), results(second, condition)
        if seeds := a.keys() & b.keys():
            ratios[condition] = fmean(a[s].measure(claim.measure) / b[s].measure(claim.measure) for s in sorted(seeds))
    evidence = "; ".join(f"{condition}: {first} / {second} = {ratio:.3f}" for condition, ratio in ratios.items())
    decisions = [
        NOT_RUN if condition not in ratios else HELD if ratios[condition] <= claim.most else FAILED
        for condition in item.conditions
    ]
    return Verdict(_together(decisions), evidence)
