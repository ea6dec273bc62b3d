"""Which sample belongs to which client?

A `Partition` holds the parameters; its `split` of some labels answers for each client, lazily where the
clients are independent of each other. Every split is made in bounded time, or refused with the reason. Here are those
that are drawn; `given.py` has those that the user or the data say.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ..base.config import parameters
from ..base.errors import UserError
from ..base.rng import generator

Indices = npt.NDArray[np.int64]
Count = Annotated[int, Field(ge=1)]
PURPOSE = "partition"


@dataclass(frozen=True)
class Split:
    """Who holds what: `indices(client)` are positions in the training data."""

    clients: int
    classes: int
    labels: Indices
    indices: Callable[[int], Indices]

    def counts(self, client: int) -> Indices:
        """How many samples of each class a client holds."""
        return np.bincount(self.labels[self.indices(client)], minlength=self.classes)

    def table(self) -> Indices:
        """The counts of all clients, one row each."""
        return np.stack([self.counts(client) for client in range(self.clients)])


@parameters
class Partition(ABC):
    """Who holds what, as a pure function of the labels and the seed; anyone who asks gets the same answer."""

    name: ClassVar[str]
    by_position: ClassVar[bool] = False
    """Does it say of single samples whose they are? Then a validation part is taken away from their holders."""

    clients: Annotated[int, Field(ge=1, le=10_000_000, description="how many clients there are (m)")] = 20

    @abstractmethod
    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        """For `clients` clients, positions in `labels`, the class numbers of the training data."""


@parameters
class Pathological(Partition):
    """Each client draws N classes and n_i/N samples of each, the remainder of the last; overlap is allowed."""

    name = "pathological"
    classes: Annotated[int, Field(ge=1, description="classes a client holds (N)")] = 2
    samples: Annotated[int, Field(ge=1, description="samples a client holds (n_i)")] = 1000

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        return _draw(labels, classes, seed, self.clients, self.samples, (self.classes,))


@parameters
class Clustered(Partition):
    """As `pathological`, but the number of classes differs by group; client i is in group i mod groups."""

    name = "clustered"
    classes: Annotated[tuple[Count, ...], Field(min_length=1, description="classes a client of each group holds")] = (
        2, 2, 3, 3, 5,
    )  # fmt: skip
    samples: Annotated[int, Field(ge=1, description="samples a client holds (n_i)")] = 1000

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        return _draw(labels, classes, seed, self.clients, self.samples, self.classes)


@parameters
class Even(Partition):
    """Every sample goes to exactly one client, and every client holds exactly N classes."""

    name = "even"
    classes: Annotated[int, Field(ge=1, description="classes a client holds (N)")] = 2

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        random = generator(seed, PURPOSE)
        pools = [np.flatnonzero(labels == c) for c in range(classes)]
        sizes = [len(pool) for pool in pools]
        shards = _shards(sizes, self.clients, self.classes)
        holders = _holders(shards, self.clients, self.classes, random)
        pieces: list[list[Indices]] = [[] for _ in range(self.clients)]
        for pool, who in zip(pools, holders, strict=True):
            if len(pool):
                parts = np.array_split(random.permutation(pool), len(who))
                for client, part in zip(random.permutation(who), parts, strict=True):
                    pieces[client].append(part)
        return fixed([np.concatenate(piece) for piece in pieces], labels, classes)


@parameters
class Dirichlet(Partition):
    """Each class is spread over the clients by a draw from Dirichlet(alpha); every sample is used once."""

    name = "dirichlet"
    alpha: Annotated[float, Field(gt=0, description="small: few classes per client; large: nearly iid")] = 0.5
    least: Annotated[int, Field(ge=1, description="samples every client has at the least")] = 10

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        if self.clients * self.least > len(labels):
            raise UserError(
                f"partition: {self.clients} clients cannot have {self.least} samples each, there are {len(labels)}; "
                "lower partition.least or partition.clients."
            )
        random = generator(seed, PURPOSE)
        pieces: list[list[Indices]] = [[] for _ in range(self.clients)]
        for c in range(classes):
            pool = random.permutation(np.flatnonzero(labels == c))
            shares = random.dirichlet(np.full(self.clients, self.alpha))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(pool)).astype(np.int64)
            for piece, part in zip(pieces, np.split(pool, cuts), strict=True):
                piece.append(part)
        return fixed(_topped_up([np.concatenate(piece) for piece in pieces], self.least), labels, classes)


@parameters
class Iid(Partition):
    """All samples shuffled and dealt out evenly."""

    name = "iid"

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        if self.clients > len(labels):
            raise UserError(f"partition: {self.clients} clients are more than the {len(labels)} samples; take fewer.")
        order = generator(seed, PURPOSE).permutation(len(labels))
        return fixed(np.array_split(order, self.clients), labels, classes)


def pooled(split: Split) -> Split:
    """All that clients hold, each sample once, in the hands of a single one."""
    held = np.zeros(len(split.labels), dtype=bool)
    for client in range(split.clients):
        held[split.indices(client)] = True
        if client % 1000 == 999 and held.all():
            break
    return fixed([np.flatnonzero(held)], split.labels, split.classes)


def fixed(pieces: list[Indices], labels: Indices, classes: int) -> Split:
    """A split that is known for all clients at once."""
    ordered = [np.sort(piece) for piece in pieces]
    return Split(len(ordered), classes, labels, ordered.__getitem__)


def _draw(labels: Indices, classes: int, seed: int, clients: int, samples: int, per_group: tuple[int, ...]) -> Split:
    """Clients that draw for themselves: the answer for one client costs nothing for the others."""
    pools = [np.flatnonzero(labels == c) for c in range(classes)]
    if empty := [c for c, pool in enumerate(pools) if not len(pool)]:
        raise UserError(f"partition: the training data have no sample of class {empty[0]}, so clients cannot draw it.")
    for held in per_group:
        most = shares(samples, held)[-1]
        if held > classes or held > samples:
            raise UserError(
                f"partition: a client cannot hold {held} classes, with {classes} classes in the data and "
                f"{samples} samples per client; lower partition.classes."
            )
        if most > min(map(len, pools)):
            raise UserError(
                f"partition: {most} samples of one class are more than the {min(map(len, pools))} in the data; "
                "lower partition.samples or raise partition.classes."
            )

    def indices(client: int) -> Indices:
        random = generator(seed, PURPOSE, client=client)
        held = per_group[client % len(per_group)]
        sizes = shares(samples, held)
        own = random.choice(classes, size=held, replace=False)
        return np.sort(np.concatenate([
            random.choice(pools[c], size=size, replace=False) for c, size in zip(own, sizes, strict=True)
        ]))  # fmt: skip

    return Split(clients, classes, labels, indices)


def shares(samples: int, held: int) -> list[int]:
    """How many samples of each of its classes a client has; the last class takes the remainder."""
    each = samples // held
    return [each] * (held - 1) + [samples - each * (held - 1)]


def _shards(sizes: list[int], clients: int, held: int) -> list[int]:
    """How many clients share each class, so that shards are as equal as they can be."""
    limits = [min(size, clients) for size in sizes]
    present = sum(limit > 0 for limit in limits)
    if not present <= clients * held <= sum(limits):
        raise UserError(
            f"partition: {clients} clients with exactly {held} classes each cannot share {present} classes of "
            f"{sum(sizes)} samples so that every sample is used once; change partition.clients or partition.classes."
        )
    shards = [min(limit, 1) for limit in limits]
    heap = [(-float(size), c) for c, size in enumerate(sizes) if limits[c] > 1]
    heapq.heapify(heap)
    for _ in range(clients * held - present):
        _, c = heapq.heappop(heap)  # the class whose shards are largest gets one more
        shards[c] += 1
        if shards[c] < limits[c]:
            heapq.heappush(heap, (-sizes[c] / shards[c], c))
    return shards


def _holders(shards: list[int], clients: int, held: int, random: np.random.Generator) -> list[list[int]]:
    """Who shares each class. Taking the classes with the most open shards first always succeeds (Gale-Ryser)."""
    open_shards = np.array(shards)
    holders: list[list[int]] = [[] for _ in shards]
    for client in random.permutation(clients):
        order = np.lexsort((random.random(len(shards)), -open_shards))
        for c in order[:held]:
            holders[c].append(int(client))
            open_shards[c] -= 1
    return holders


def _topped_up(pieces: list[Indices], least: int) -> list[Indices]:
    """Give clients with too few samples some of the largest client's: one pass, no drawing until it fits."""
    sizes = [(-len(piece), client) for client, piece in enumerate(pieces)]
    heapq.heapify(sizes)
    for client, piece in enumerate(pieces):
        need = least - len(piece)
        taken = [piece]
        while need > 0:
            size, giver = heapq.heappop(sizes)
            spare = min(need, len(pieces[giver]) - least)
            if spare <= 0 or giver == client:
                heapq.heappush(sizes, (size, giver))
                break
            taken.append(pieces[giver][:spare])
            pieces[giver] = pieces[giver][spare:]
            heapq.heappush(sizes, (-len(pieces[giver]), giver))
            need -= spare
        pieces[client] = np.concatenate(taken)
    return pieces
