"""Did a claim hold? Decided from finished cells by rules written down here, the same for every claim.

A pair is compared under each condition on the seeds that both methods have: the mean difference counts if it
is larger than the claim's threshold (half a point of accuracy unless it says otherwise). A claim held if every
pair under every condition did; it did not hold if one clearly did the opposite; otherwise it is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from .items import OTHERS, Claim, Item
from .results import Result

HELD, FAILED, OPEN = "held", "did not hold", "not decided"
Lookup = Callable[[str, str], Mapping[int, Result]]
"""Method and condition to results by seed."""


@dataclass(frozen=True)
class Verdict:
    decision: str
    evidence: str


@dataclass(frozen=True)
class Comparison:
    """One pair under one condition: the mean difference over common seeds, or None if there is none."""

    condition: str
    first: str
    second: str
    difference: float | None

    def decision(self, claim: Claim) -> str:
        if self.difference is None:
            return OPEN
        value = self.difference + claim.slack
        if value > claim.threshold or (claim.slack and value >= 0):
            return HELD
        return FAILED if value < -claim.threshold or (claim.slack and value < 0) else OPEN


def judge(item: Item, claim: Claim, results: Lookup) -> Verdict:
    if claim.ratio:
        return _judge_ratio(item, claim, results)
    found = list(_comparisons(item, claim, results))
    decisions = {c.condition: [o.decision(claim) for o in found if o.condition == c.condition] for c in found}
    outcomes = [_together(each) for each in decisions.values()]
    if claim.any and HELD in outcomes:
        return Verdict(HELD, _evidence(found))
    if claim.any and FAILED in outcomes and OPEN in outcomes:
        return Verdict(OPEN, _evidence(found))
    return Verdict(_together(outcomes), _evidence(found))


def _together(decisions: list[str]) -> str:
    if FAILED in decisions:
        return FAILED
    return OPEN if OPEN in decisions or not decisions else HELD


def _comparisons(item: Item, claim: Claim, results: Lookup) -> Iterator[Comparison]:
    for condition in item.conditions:
        for first, second in claim.pairs:
            rivals = [m for m in item.methods if m != first] if second == OTHERS else [second]
            for rival in rivals:
                difference = _difference(claim, results(first, condition), results(rival, condition))
                yield Comparison(condition, first, rival, difference)


def _difference(claim: Claim, first: Mapping[int, Result], second: Mapping[int, Result]) -> float | None:
    seeds = first.keys() & second.keys()
    if not seeds:
        return None
    return fmean(first[seed].measure(claim.measure) - second[seed].measure(claim.measure) for seed in sorted(seeds))


def _evidence(found: list[Comparison]) -> str:
    """The narrowest difference of each first method under each condition: what decides."""
    parts = []
    for condition in dict.fromkeys(c.condition for c in found):
        there = [c for c in found if c.condition == condition and c.difference is not None]
        if not there:
            continue
        firsts = dict.fromkeys(c.first for c in there)
        for first in firsts:
            least = min((c for c in there if c.first == first), key=lambda c: c.difference or 0.0)
            parts.append(f"{condition}: {first} − {least.second} = {least.difference:+.2f}")
    lacking = sum(c.difference is None for c in found)
    if lacking and parts:
        parts.append(f"{lacking} of {len(found)} comparisons not run")
    return "; ".join(parts)


def _judge_ratio(item: Item, claim: Claim, results: Lookup) -> Verdict:
    assert claim.ratio is not None
    first, second = claim.ratio
    ratios = {}
    for condition in item.conditions:
        a, b = results(first, condition), results(second, condition)
        if seeds := a.keys() & b.keys():
            ratios[condition] = fmean(a[s].measure(claim.measure) / b[s].measure(claim.measure) for s in sorted(seeds))
    evidence = "; ".join(f"{condition}: {first} / {second} = {ratio:.3f}" for condition, ratio in ratios.items())
    if any(ratio > claim.most for ratio in ratios.values()):
        return Verdict(FAILED, evidence)
    return Verdict(HELD if len(ratios) == len(item.conditions) else OPEN, evidence)
