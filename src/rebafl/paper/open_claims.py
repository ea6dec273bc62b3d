"""What should be run next? The cells that decide open claims, ordered by what is cheapest per claim.

A claim is open while its verdict is *not run* or *partly run*. The rule is greedy: of all open claims the one whose
missing cells take the least time together comes next, cells that are planned already costing nothing; its cells follow
each other, the quickest first, and what they all serve is said of each. Ties keep the order of the paper. After every
cell the claims are judged again: one clear opposite decides a claim, and what only it needed is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .item_results import ItemResults
from .items import RACE, Cell, Claim, cells
from .readings import OPEN
from .verdicts import pairs_of


@dataclass(frozen=True)
class OpenClaim:
    """A claim that is not decided, and the cells of a seed that it still needs, by their keys."""

    name: str  # as the page has it: the item, and which of its claims
    claim: Claim
    needs: Mapping[str, Cell]


@dataclass(frozen=True)
class Step:
    """A cell to run, and the open claims that it serves."""

    cell: Cell
    claims: Sequence[OpenClaim]


def open_claims(shown: Sequence[ItemResults], seed: int) -> list[OpenClaim]:
    """All claims that cells can decide and that are not decided yet."""
    return [
        OpenClaim(f"{items.item.name}.{number}", reading.claim, needs)
        for items in shown
        for number, reading in enumerate(items.readings, 1)
        if reading.decision in OPEN and reading.claim.measure != RACE and (needs := _needs(items, reading.claim, seed))
    ]


def _needs(items: ItemResults, claim: Claim, seed: int) -> dict[str, Cell]:
    """The cells of the comparisons that no seed has made yet."""
    by_side = {(cell.method, cell.condition): cell for cell in cells(items.item, items.scale, [seed])}
    missing = [
        side
        for pair in pairs_of(items.item, claim)
        if not items.lookup(*pair[0]).keys() & items.lookup(*pair[1]).keys()
        for side in pair
        if seed not in items.lookup(*side)
    ]
    return {by_side[side].key: by_side[side] for side in missing}


def plan(claims: Sequence[OpenClaim], seconds: Callable[[Cell], float]) -> list[Step]:
    """The order in which to run what the claims need, by the rule above."""
    planned: dict[str, Cell] = {}
    left, costs = list(claims), {key: seconds(cell) for claim in claims for key, cell in claim.needs.items()}

    def cost(claim: OpenClaim) -> float:
        return sum(costs[key] for key in claim.needs if key not in planned)

    while left:
        cheapest = min(left, key=cost)
        left.remove(cheapest)
        for key in sorted(cheapest.needs, key=lambda key: costs[key]):
            planned.setdefault(key, cheapest.needs[key])
    return [Step(cell, [claim for claim in claims if key in claim.needs]) for key, cell in planned.items()]
