"""Did a claim hold? Decided from finished cells by rules written down here, the same for every claim.

A pair is compared on the seeds that both have, under each condition, or across the two that are named. The mean
difference counts if it is more than half a point of accuracy and, over several seeds, more than its standard error; of
a claim that names points of its own ("within", "by more than"), what counts is how far it is from these, by more than
the standard error. A claim held if every pair did; it did not hold if one clearly did the opposite; else it is too
close, or, while pairs are missing, partly run or not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ..base.config import Plain
from .items import AT, EVERY, OTHERS, Claim, Item, printed
from .results import Result

HELD, FAILED, CLOSE, PARTLY, NOT_RUN = "held", "did not hold", "too close", "partly run", "not run"
Lookup = Callable[[str, str], Mapping[int, Result]]
"""Method and condition to results by seed."""
Side = tuple[str, str]
"""A method under a condition."""


@dataclass(frozen=True)
class Verdict:
    """On a claim by one measure: what was decided, the numbers that say so, and the one of them that decides.

    `number` is the lowest of the comparisons that decide (the narrowest lead of what held; of what did not, of those on
    the most seeds the clearest opposite), `of` which one that is, `seeds` on how many seeds the decision rests: of what
    held, the fewest that anything was compared on. All are empty where nothing was run. `evidence` has the lowest under
    each condition.
    """

    decision: str
    evidence: str = ""
    number: str = ""
    of: str = ""
    seeds: int = 0


@dataclass(frozen=True)
class Comparison:
    """One pair: its differences, one for each common seed."""

    first: Side
    second: Side
    differences: tuple[float, ...]

    @property
    def seeds(self) -> int:
        return len(self.differences)

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
        value = self.mean - claim.margin
        if abs(value) <= max(claim.counts_from, self.error):
            return CLOSE
        return HELD if value > 0 else FAILED

    @property
    def number(self) -> str:
        """The mean difference, and over several seeds its standard error."""
        return _short(self.mean) + (f" ± {self.error:.2g}" if self.error else "")

    @property
    def of(self) -> str:
        """What is compared with what."""
        (first, condition), (second, other) = self.first, self.second
        if condition == other:
            return f"{condition}: {first} − {second}"
        return f"{first} ({condition}) − {second} ({other})"

    def __str__(self) -> str:
        return f"{self.of} = {self.number}"


def _short(value: float) -> str:
    """Points of accuracy with two decimals; what is smaller with three digits."""
    return f"{value:+.2f}" if abs(value) >= 0.05 or value == 0 else f"{value:+.3g}"


def judge(item: Item, claim: Claim, results: Lookup) -> Verdict:
    """By the rules above; a claim on a ratio by the ratio under each condition."""
    if claim.ratio:
        return _judge_ratio(item, claim, results)
    comparisons = [
        Comparison(first, second, _differences(claim.measure, results(*first), results(*second)))
        for first, second in pairs_of(item, claim)
    ]
    decision = _together([comparison.decision(claim) for comparison in comparisons])
    run = [comparison for comparison in comparisons if comparison.differences]
    if not run:
        return Verdict(decision)
    deciding = [comparison for comparison in run if comparison.decision(claim) == decision] or run
    most = max(comparison.seeds for comparison in deciding) if decision == FAILED else 0
    lowest = min((each for each in deciding if each.seeds >= most), key=lambda comparison: comparison.mean)
    seeds = min(comparison.seeds for comparison in run) if decision == HELD else lowest.seeds
    return Verdict(decision, _evidence(comparisons), lowest.number, lowest.of, seeds)


def _together(decisions: Sequence[str]) -> str:
    if FAILED in decisions:
        return FAILED
    if NOT_RUN in decisions:
        return NOT_RUN if set(decisions) == {NOT_RUN} else PARTLY
    return CLOSE if CLOSE in decisions else HELD


def pairs_of(item: Item, claim: Claim) -> Iterator[tuple[Side, Side]]:
    """What a claim compares: the methods it names, `others` and `every` being the paper's."""
    if claim.ratio:
        first, second = claim.ratio
        yield from (((first, condition), (second, condition)) for condition in item.conditions)
    for condition in claim.where or item.conditions:
        for first, second in claim.pairs:
            if AT not in first:
                rivals = [m for m in item.methods if m != first] if second == OTHERS else [second]
                yield from (((first, condition), (rival, condition)) for rival in rivals)
    for pair in claim.pairs:
        if AT in pair[0]:
            (first, condition), (second, other) = (side.split(AT) for side in pair)
            for method in item.methods if first == EVERY else [first]:
                yield (method, condition), (method if second == EVERY else second, other)


def _differences(measure: str, first: Mapping[int, Result], second: Mapping[int, Result]) -> tuple[float, ...]:
    seeds = sorted(first.keys() & second.keys())
    return tuple(first[seed].measure(measure) - second[seed].measure(measure) for seed in seeds)


def _evidence(comparisons: Sequence[Comparison]) -> str:
    """The lowest difference under each condition: what decides."""
    run = [comparison for comparison in comparisons if comparison.differences]
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in run:
        groups.setdefault((comparison.first[1], comparison.second[1]), []).append(comparison)
    lowest = [min(group, key=lambda comparison: comparison.mean) for group in groups.values()]
    parts, seeds = [str(comparison) for comparison in lowest], max(len(found.differences) for found in lowest)
    if missing := len(comparisons) - len(run):
        parts.append(f"{missing} of {len(comparisons)} comparisons not run")
    return "; ".join(parts) + (f" (± standard error over {seeds} seeds, without it one seed)" if seeds > 1 else "")


def _judge_ratio(item: Item, claim: Claim, results: Lookup) -> Verdict:
    assert claim.ratio is not None
    first, second = claim.ratio
    ratios, seeds = dict[str, float](), dict[str, int]()
    for condition in item.conditions:
        a, b = results(first, condition), results(second, condition)
        if common := sorted(a.keys() & b.keys()):
            ratios[condition] = fmean(
                a[seed].measure(claim.measure) / b[seed].measure(claim.measure) for seed in common
            )
            seeds[condition] = len(common)
    decisions = [
        NOT_RUN if condition not in ratios else HELD if ratios[condition] <= claim.most else FAILED
        for condition in item.conditions
    ]
    if not ratios:
        return Verdict(NOT_RUN)
    evidence = "; ".join(f"{condition}: {first} / {second} = {ratio:.3f}" for condition, ratio in ratios.items())
    largest = max(ratios, key=lambda condition: ratios[condition])
    decision, of = _together(decisions), f"{largest}: {first} / {second}"
    rests_on = min(seeds.values()) if decision == HELD else seeds[largest]
    return Verdict(decision, evidence, f"{ratios[largest]:.3f}", of, rests_on)


def judge_race(claim: Claim, race: Plain) -> Verdict:
    """A claim on seconds, by the benchmark's rounds of both methods in turn: separate runs differ by the load.

    It is too close if the limit lies within the range of the rounds.
    """
    if not (ratios := race.get("rebafl_to_fedavg")):
        return Verdict(NOT_RUN)
    low, high = ratios["spread"]
    number, of = f"{ratios['ratio']:.2f} ({low:.2f} to {high:.2f})", "rounds in turn: ReBaFL / FedAvg"
    decision = HELD if high <= claim.most else FAILED if low > claim.most else CLOSE
    return Verdict(decision, f"{of} = {number}", number, of)


def judge_printed(item: Item, claim: Claim) -> str:
    """The decision on the numbers that the paper itself prints; empty where it prints none."""

    def lookup(method: str, condition: str) -> Mapping[int, Result]:
        value = printed(item, condition, method)
        return {} if value is None else {0: Result(1, 0, {}, {}, {"accuracy": [value]})}

    decision = judge(item, claim, lookup).decision if claim.measure == "best" else NOT_RUN
    return "" if decision == NOT_RUN else decision
