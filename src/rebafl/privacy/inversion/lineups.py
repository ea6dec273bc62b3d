"""Which private pictures is a reconstruction held against, and beside which others? Drawn once, for all attacks.

A line-up has one hundred pictures of a class: one member of the mean, drawn at random from the k, at a random place,
and 99 that are in no mean. A fake line-up has a picture that is in no mean in the member's place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.rng import generator
from ...population.partition import Indices
from ..tracing import disjoint

SIZE = 100
USUAL_LINEUPS = 20
"""Of each class, client and k; means that are fewer get several each, with different members."""
SOME = "some of a client's images"
"""What a mean was made of, where it was not one that was sent."""


@dataclass(frozen=True)
class Lineups:
    """One in each row, as positions in the data set, and where in it the one to be found stands."""

    positions: Indices
    places: Indices


@dataclass(frozen=True)
class Target:
    """A mean of k private pictures, by their positions in the data set, and those that a reconstruction is shown with.

    `unit` is what intervals are over: the client, or a part of one's own images.
    """

    unit: int
    client: int
    label: int
    what: str
    k: int
    members: Indices
    """Or as many of them as there are others."""
    others: Indices
    """As many non-members as members, as far as there are twice as many."""
    fake_members: Indices
    """As many other non-members."""
    real: Lineups
    fake: Lineups


def target(
    client: int, label: int, what: str, k: int, members: Indices, non_members: Indices, seed: int, number: int = 0,
    lineups: int = USUAL_LINEUPS, unit: int | None = None,
) -> Target:  # fmt: skip
    """`number` tells the means of one client's class apart."""
    random = generator(seed, f"inversion line-ups of {what}, class {label}, k = {k}, mean {number}", 0, client)
    shown = random.permutation(members)[:lineups]
    real = [_hidden(int(one), random.permutation(non_members)[: SIZE - 1], random) for one in shown]
    fake = []
    for _ in shown:
        drawn = random.permutation(non_members)[:SIZE]
        fake.append(_hidden(int(drawn[0]), drawn[1:], random))
    drawn = random.permutation(non_members)
    few = min(len(members), len(drawn) // 2)
    apart = random.permutation(members)[:few], drawn[:few], drawn[few : 2 * few]
    unit = client if unit is None else unit
    return Target(unit, client, label, what, k, *apart, _together(real), _together(fake))


def _hidden(one: int, others: Indices, random: np.random.Generator) -> tuple[Indices, int]:
    place = int(random.integers(SIZE))
    return np.insert(others, place, one), place


def _together(some: list[tuple[Indices, int]]) -> Lineups:
    return Lineups(np.stack([row for row, _ in some]), np.array([place for _, place in some]))


def means_of(
    client: int, label: int, own: Indices, k: int, most: int, non_members: Indices, seed: int, parts: int = 0
) -> list[Target]:
    """Disjoint means of k of a client's images, at the most so many; `parts`: intervals are over so many parts."""
    chosen = disjoint(len(own), k, seed, client, label, most)
    lineups = -(-min(USUAL_LINEUPS, most) // max(1, len(chosen)))
    return [
        target(client, label, SOME, k, own[rows], non_members, seed, number, lineups, number % parts if parts else None)
        for number, rows in enumerate(chosen)
    ]
