"""Which number does the paper print? Measured: how far each of ours is from it, in every cell that has both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .item_results import BY_CLOUD, ItemResults
from .items import Item, printed
from .readings import TABLE_MEASURES


@dataclass(frozen=True)
class Gap:
    """A cell, and by each measure how many points ours is above the number that the paper prints."""

    method: str
    place: str  # item and condition
    theirs: float
    by_measure: Mapping[str, float]
    seeds: int
    by_cloud: bool = False  # of the cloud model, not of the one that counts
    not_counted: str = ""  # why it says nothing of what the paper prints, if so

    @property
    def name(self) -> str:
        return f"{BY_CLOUD.format(self.method) if self.by_cloud else self.method}, {self.place}"


WITHDRAWN = "whose numbers are commented out in the paper's source"
REPEATED = "whose numbers count once already, in table1"


def gaps(shown: Iterable[ItemResults]) -> list[Gap]:
    """Of each cell once, however many items show it; of a run with a cloud model a second one by that.

    A cell that one of its items counts is counted.
    """
    found: dict[str, list[Gap]] = {}
    for items in sorted(shown, key=lambda items: _not_counted(items.item) != ""):
        reason = _not_counted(items.item)
        for (method, condition), by_seed in items.results.items():
            theirs, key = printed(items.item, condition, method), items.keys[method, condition]
            if theirs is None or key in found:
                continue
            models = [list(by_seed.values()), [other for r in by_seed.values() if (other := r.of_cloud_model)]]
            found[key] = [
                Gap(
                    method,
                    f"{items.item.name}: {condition}",
                    theirs,
                    {name: fmean(result.measure(name) for result in results) - theirs for name in TABLE_MEASURES},
                    len(results),
                    by_cloud,
                    reason,
                )
                for results, by_cloud in zip(models, (False, True), strict=True)
                if results
            ]
    return [gap for of_cell in found.values() for gap in of_cell]


def _not_counted(item: Item) -> str:
    return WITHDRAWN if item.withdrawn else REPEATED if item.repeats else ""


def by_the_authors_model(every: Sequence[Gap]) -> list[Gap]:
    """One for each cell, FedDyn by its cloud model: that is what the ReBaFL authors' code scores."""
    with_cloud = {(gap.method, gap.place) for gap in every if gap.by_cloud}
    return [gap for gap in every if gap.by_cloud or (gap.method, gap.place) not in with_cloud]
