"""Which of FedDyn's two models is meant? The mean of its clients' models and the cloud model, of each of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .item_results import ItemResults
from .items import printed
from .results import Result

REFERENCE, FEDDYN = "ReBaFL", "FedDyn"


@dataclass(frozen=True)
class TwoModels:
    """The same runs by both models, and those of a method to compare with, on the same seeds."""

    method: str
    place: str  # item and condition
    clients: Sequence[Result]
    cloud: Sequence[Result]
    reference: Sequence[Result]
    theirs: float | None

    @property
    def name(self) -> str:
        """Where it was run, and with which settings if not FedDyn's own."""
        return self.place if self.method == FEDDYN else f"{self.place}, {self.method}"


def two_models(shown: Iterable[ItemResults]) -> list[TwoModels]:
    """Of each run once, however many items show it."""
    found: dict[str, TwoModels] = {}
    for items in shown:
        for (method, condition), by_seed in items.results.items():
            key, reference = items.keys[method, condition], items.lookup(REFERENCE, condition)
            by_cloud = {seed: cloud for seed, result in by_seed.items() if (cloud := result.of_cloud_model)}
            seeds = sorted(by_cloud.keys() & reference.keys()) or sorted(by_cloud)
            if seeds and key not in found:
                found[key] = TwoModels(
                    method,
                    f"{items.item.name}: {condition}",
                    [by_seed[seed] for seed in seeds],
                    [by_cloud[seed] for seed in seeds],
                    [reference[seed] for seed in seeds if seed in reference],
                    printed(items.item, condition, method),
                )
    return list(found.values())
