"""What do our results say about an item of the paper? Its finished cells, and which of them are shown side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import fmean

from ..base.config import Plain
from .items import PAPER, RACE, Item, Scale, cells, printed
from .readings import Reading, read_claim, read_race
from .results import Result, read, seeds_kept

FAR = 3.0  # points between ours and the paper's that call for an explanation
OURS, BY_CLOUD = "{} (ours)", "{}, cloud model"


@dataclass(frozen=True)
class Row:
    """What tables and figures show of a method under a condition: its results, and the number the paper prints."""

    method: str
    name: str  # as it is shown
    results: Sequence[Result]
    theirs: float | None

    @property
    def by_cloud_model(self) -> bool:
        return self.name == BY_CLOUD.format(self.method)

    def mean(self, measure: str) -> float:
        return fmean(result.measure(measure) for result in self.results)


@dataclass(frozen=True)
class ItemResults:
    """An item at a scale, with all its results; `race` is what the benchmark measured, at the paper's scale."""

    item: Item
    scale: Scale
    folder: Path
    race: Plain = field(default_factory=dict)

    @cached_property
    def results(self) -> dict[tuple[str, str], dict[int, Result]]:
        """By method and condition, then by seed; of longer runs as many rounds as the scale has."""
        kept: dict[tuple[str, str], dict[int, Result]] = {}
        for cell in cells(self.item, self.scale, seeds_kept(self.scale.name, self.folder), ours=True):
            result, rounds = read(cell, self.folder), cell.settings.rounds
            if result is not None and result.rounds >= rounds:
                kept.setdefault((cell.method, cell.condition), {})[cell.settings.seed] = result.cut(rounds)
        return kept

    @cached_property
    def keys(self) -> dict[tuple[str, str], str]:
        """By method and condition, a name that cells of different items share if they are the same run."""
        return {(cell.method, cell.condition): cell.key for cell in cells(self.item, self.scale, ours=True)}

    def lookup(self, method: str, condition: str) -> Mapping[int, Result]:
        """By seed; empty if there is none."""
        return self.results.get((method, condition), {})

    def rows(self, condition: str) -> list[Row]:
        """Each method that has results, on the seeds that all the paper's methods have, if there is such a seed.

        Seeds that a method of ours lacks are shown of the others all the same.
        """
        seeds = [set(by_seed) for method in self.item.methods if (by_seed := self.lookup(method, condition))]
        return self._rows(condition, set[int].intersection(*seeds) if seeds else set[int]())

    def more_seeds(self, condition: str) -> list[Row]:
        """The methods that share the most seeds, on these; none if `rows` shows as many."""
        seeds = {method: set(self.lookup(method, condition)) for method in self.item.shown_methods}
        shared = max((seeds[a] & seeds[b] for a, b in combinations(seeds, 2)), key=len, default=set[int]())
        if len(shared) <= min((len(row.results) for row in self.rows(condition)), default=0):
            return []
        return self._rows(condition, shared, [method for method in seeds if seeds[method] >= shared])

    def _rows(self, condition: str, seeds: Collection[int], methods: Sequence[str] | None = None) -> list[Row]:
        """On these seeds; all seeds of a method that has none of them."""
        rows = []
        for method in methods or self.item.shown_methods:
            if not (own := self.lookup(method, condition)):
                continue
            results = [result for seed, result in own.items() if seed in seeds] or list(own.values())
            theirs, ours = printed(self.item, condition, method), method in self.item.ours
            rows.append(Row(method, OURS.format(method) if ours else method, results, theirs))
            by_cloud = [by_cloud for result in results if (by_cloud := result.of_cloud_model)]
            if by_cloud:
                rows.append(Row(method, BY_CLOUD.format(method), by_cloud, theirs))
        return rows

    @property
    def conditions(self) -> list[str]:
        """Those that have results, in the item's order."""
        return [name for name in self.item.conditions if any(name == condition for _, condition in self.results)]

    @property
    def comparable(self) -> bool:
        """Is there something for a picture: two conditions along a line, or two methods under one of them?"""
        methods = Counter(condition for _, condition in self.results)
        return len(methods) > 1 if self.item.shows[0] == "lines" else max(methods.values(), default=0) > 1

    @property
    def pending(self) -> str:
        """Cells of the paper without any seed yet, condition by condition; empty if there are none."""
        missing = {
            condition: [method for method in self.item.methods if not self.lookup(method, condition)]
            for condition in self.item.conditions
        }
        return "; ".join(
            f"{condition}: {'all' if len(methods) == len(self.item.methods) else ', '.join(methods)}"
            for condition, methods in missing.items()
            if methods
        )

    @cached_property
    def readings(self) -> list[Reading]:
        """Of the item's claims, in their order: what was decided of each."""
        race = self.race if self.scale.name == PAPER else {}
        return [
            read_race(claim, race) if claim.measure == RACE else read_claim(self.item, claim, self.lookup)
            for claim in self.item.claims
        ]

    def troubles(self) -> list[str]:
        """Runs in which uploads were refused or rounds brought no update, which their numbers do not show."""
        return [
            f"{method}, {condition}, seed {seed}: {words}"
            for (method, condition), by_seed in self.results.items()
            for seed, result in by_seed.items()
            if (words := str(result.tally))
        ]

    def far_from_paper(self) -> list[str]:
        """Where the mean over the second half, and over all seeds, is more than a few points off the paper's number."""
        gaps = []
        for condition in self.conditions if self.scale.name == PAPER else ():
            for row in self._rows(condition, seeds=()):
                ours, seeds = row.mean("second_half"), len(row.results)
                if row.theirs is not None and abs(ours - row.theirs) > FAR:
                    of = f" ({seeds} seeds)" if seeds > 1 else ""
                    gaps.append(f"{row.name}, {condition}: {ours:.2f}{of} against {row.theirs:.2f}")
        return gaps


@dataclass(frozen=True)
class Count:
    """Cells of the paper, how many of them are finished with some seed, and which finished cells stand beside them."""

    of: int
    finished: int
    further_seeds: int
    ours: int  # of methods that are not the paper's, of every seed


def counted_once(shown: Iterable[ItemResults]) -> Count:
    """Cells that several items share, or that one has under two names, are one."""
    papers, finished, ours = set[str](), set[tuple[str, int]](), set[tuple[str, int]]()
    for items in shown:
        for (method, condition), key in items.keys.items():
            with_seeds = {(key, seed) for seed in items.lookup(method, condition)}
            if method in items.item.ours:
                ours |= with_seeds
            else:
                papers.add(key)
                finished |= with_seeds
    with_some_seed = {key for key, _ in finished}
    return Count(len(papers), len(with_some_seed), len(finished) - len(with_some_seed), len(ours))
