"""What do our results say about an item of the paper? Its finished cells, and the verdicts on its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from ..base.config import Plain
from .items import PAPER, RACE, Claim, Item, Scale, cells, printed
from .results import Result, read, seeds_kept
from .verdicts import Verdict, judge, judge_race

FAR = 3.0  # points between ours and the paper's that call for an explanation


@dataclass(frozen=True)
class ItemResults:
    """An item at a scale, with all its results; `race` is what the benchmark measured."""

    item: Item
    scale: Scale
    folder: Path
    race: Plain = field(default_factory=dict)

    @cached_property
    def results(self) -> dict[tuple[str, str], dict[int, Result]]:
        """By method and condition, then by seed; of longer runs as many rounds as the scale has."""
        kept: dict[tuple[str, str], dict[int, Result]] = {}
        for cell in cells(self.item, self.scale, seeds_kept(self.scale.name, self.folder)):
            result, rounds = read(cell, self.folder), cell.settings.rounds
            if result is not None and result.rounds >= rounds:
                kept.setdefault((cell.method, cell.condition), {})[cell.settings.seed] = result.cut(rounds)
        return kept

    def lookup(self, method: str, condition: str) -> Mapping[int, Result]:
        """By seed; empty if there is none."""
        return self.results.get((method, condition), {})

    def on_common_seeds(self, method: str, condition: str) -> Mapping[int, Result]:
        """As `lookup`, but only seeds that all methods under this condition have, if there is such a seed."""
        seeds = [set(by_seed) for (_, other), by_seed in self.results.items() if other == condition]
        common, own = set[int].intersection(*seeds) if seeds else set[int](), self.lookup(method, condition)
        return {seed: result for seed, result in own.items() if seed in common} if common else own

    @property
    def comparable(self) -> bool:
        """Is there something for a picture: two conditions along a line, or two methods under one of them?"""
        methods = Counter(condition for _, condition in self.results)
        return len(methods) > 1 if self.item.shows[0] == "lines" else max(methods.values(), default=0) > 1

    @property
    def pending(self) -> str:
        """Cells without any seed yet, condition by condition; empty if there are none."""
        missing = {
            condition: [method for method in self.item.methods if not self.lookup(method, condition)]
            for condition in self.item.conditions
        }
        return "; ".join(
            f"{condition}: {'all' if len(methods) == len(self.item.methods) else ', '.join(methods)}"
            for condition, methods in missing.items()
            if methods
        )

    def verdicts(self) -> list[Verdict]:
        """On the item's claims, in their order."""
        return [self._verdict(claim) for claim in self.item.claims]

    def _verdict(self, claim: Claim) -> Verdict:
        """By the claim's measure; of the best round, with a note if the second half as a whole decides otherwise."""
        if claim.measure == RACE:
            return judge_race(claim, self.race)
        verdict = judge(self.item, claim, self.lookup)
        if claim.measure != "best":
            return verdict
        other = judge(self.item, replace(claim, measure="second_half"), self.lookup)
        if other.decision == verdict.decision:
            return verdict
        evidence = f"{verdict.evidence}; by the second half {other.decision}: {other.evidence}"
        return replace(verdict, evidence=evidence, otherwise=other.decision)

    def troubles(self) -> list[str]:
        """Runs in which uploads were refused or rounds brought no update, which their numbers do not show."""
        return [
            f"{method}, {condition}, seed {seed}: {words}"
            for (method, condition), by_seed in self.results.items()
            for seed, result in by_seed.items()
            if (words := str(result.tally))
        ]

    def far_from_paper(self) -> list[str]:
        """Where ours and the paper's differ by more than a few points."""
        if self.scale.name != PAPER:
            return []
        gaps = []
        for method, condition in self.results:
            theirs = printed(self.item, condition, method)
            ours = fmean(result.measure("best") for result in self.on_common_seeds(method, condition).values())
            if theirs is not None and abs(ours - theirs) > FAR:
                gaps.append(f"{method}, {condition}: {ours:.2f} against {theirs:.2f}")
        return gaps
