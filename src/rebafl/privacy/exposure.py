"""Whose prototypes does each round hand to whom? Counted exactly, from who took part and who holds what.

The broadcast of a class with one holder is that client's own prototype, with its exact count. With two holders, each of
them gets the other's by subtracting its own. If one or two uploads make the whole round, the same holds for models.
What was broadcast once is sent again in every round until another mean takes its place: after a round without an
update, and, where the server remembers (`algorithm.memory`), after each in which nobody shares the class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..population.partition import Indices
from ..runs.events import RoundLine


@dataclass(frozen=True)
class Handed:
    """One client's prototype of one class, handed out exactly by the broadcast that follows a round."""

    round: int
    label: int
    client: int
    count: int
    to: tuple[int, ...]
    by: str
    """`single holder`: anyone who receives the broadcast; `subtraction`: the other holder."""


@dataclass(frozen=True)
class Exposure:
    """What all rounds handed out."""

    handed: list[Handed]
    holders: dict[int, int]
    """How many holders -> in how many (class, round) pairs; those that nobody holds are left out."""
    uploads: int
    to_server: int
    """Prototypes that the server received, one per client, class and round."""
    models: dict[int, list[int]]
    """Rounds of one or two uploads -> their clients, whose models can be computed from the next broadcast."""

    @property
    def pairs(self) -> int:
        return sum(self.holders.values())

    def share(self, holders: int) -> float:
        return self.holders.get(holders, 0) / self.pairs if self.pairs else 0.0

    def clients(self) -> set[int]:
        """Those of whom some prototype was handed to another client."""
        return {event.client for event in self.handed if set(event.to) - {event.client}}


def exposure(lines: Sequence[RoundLine], table: Indices, least_holders: int = 1, memory: bool = False) -> Exposure:
    """`table`: how many images of each class each client shares. Classes of fewer than `least_holders` are not sent."""
    handed: list[Handed] = []
    holders: Counter[int] = Counter()
    models: dict[int, list[int]] = {}
    uploads = to_server = 0
    for place, line in enumerate(lines):
        used = sorted(line.used)
        uploads += len(used)
        kept = list(line.unshared)  # by the clients themselves
        to_server += int((table[used] > 0).sum() - (table[used][:, kept] > 0).sum())
        if 0 < len(used) <= 2:
            models[line.round] = used
        for label in range(table.shape[1]):
            holding = [client for client in used if table[client, label] > 0]
            if not holding:
                continue
            holders[len(holding)] += 1
            if len(holding) < least_holders or label in kept:
                continue
            told = recipients(lines, place, label, table, least_holders, memory) if len(holding) <= 2 else ()
            if len(holding) == 1:
                handed.append(_handed(line.round, label, holding[0], table, told, "single holder"))
            elif len(holding) == 2:
                for client, other in (holding, holding[::-1]):
                    to = (other,) if other in told else ()
                    handed.append(_handed(line.round, label, client, table, to, "subtraction"))
    return Exposure(handed, dict(sorted(holders.items())), uploads, to_server, models)


def recipients(
    lines: Sequence[RoundLine], place: int, label: int, table: Indices, least_holders: int, memory: bool
) -> tuple[int, ...]:
    """Who receives the mean of a class that the round at `place` made: all until another takes its place."""
    told: set[int] = set()
    for line in lines[place + 1 :]:
        told |= set(line.active)
        sharing = sum(table[client, label] > 0 for client in line.used)
        if line.used and not (memory and (sharing < max(1, least_holders) or label in line.unshared)):
            break
    return tuple(sorted(told))


def _handed(round: int, label: int, client: int, table: Indices, to: tuple[int, ...], by: str) -> Handed:
    others = tuple(one for one in to if one != client)
    return Handed(round, label, client, int(table[client, label]), others, by)


def without_own(prototype: Tensor, mass: float, own: Tensor, count: float) -> Tensor:
    """What is left of a broadcast mean when a holder takes its own share out."""
    return (prototype.double() * mass - own.double() * count) / (mass - count)


@dataclass(frozen=True)
class Counts:
    """What class counts say of clients."""

    clients: int
    unique_classes: int
    """Clients whose set of held classes no other client has."""
    unique_counts: int
    bits: float
    """Of the log2(clients) bits that name a client, how many its set of classes gives away on average."""


def counts_of(table: Indices) -> Counts:
    sets = [tuple(row > 0) for row in table]
    rows = [tuple(row) for row in table]
    alike, same = Counter(sets), Counter(rows)
    clients = len(table)
    bits = float(np.mean([np.log2(clients / alike[one]) for one in sets]))
    return Counts(clients, sum(alike[s] == 1 for s in sets), sum(same[r] == 1 for r in rows), bits)
