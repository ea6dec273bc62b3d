"""Which sample belongs to which client?

A `Partition` holds the parameters; its `split` of some labels answers for each client, lazily where the
clients are independent of each other. Every split is made in bounded time, or refused with the reason.
"""

from __future__ import annotations

import heapq
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ..base.config import parameters
from ..base.errors import UserError
from ..base.kinds import Kinds, address_of, explained, no_subclass
from ..base.reading import located, read_text
from ..base.rng import generator

Indices = npt.NDArray[np.int64]
Count = Annotated[int, Field(ge=1)]
PURPOSE = "partition"
CHECKED = 1000  # clients of an own partition that are looked at before a run begins


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
        return _fixed([np.concatenate(piece) for piece in pieces], labels, classes)


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
        return _fixed(_topped_up([np.concatenate(piece) for piece in pieces], self.least), labels, classes)


@parameters
class Iid(Partition):
    """All samples shuffled and dealt out evenly."""

    name = "iid"

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        if self.clients > len(labels):
            raise UserError(f"partition: {self.clients} clients are more than the {len(labels)} samples; take fewer.")
        order = generator(seed, PURPOSE).permutation(len(labels))
        return _fixed(np.array_split(order, self.clients), labels, classes)


@parameters
class File(Partition):
    """A JSON list with a list of sample positions for each client, as `rebafl partition --save` writes it."""

    name = "file"
    by_position = True
    path: Annotated[str, Field(description="the JSON file")]
    clients: Annotated[
        int, Field(ge=0, le=10_000_000, description="how many clients there are (m); 0: as many as the file has")
    ] = 0

    def __post_init__(self) -> None:
        """Settings that are stored say how many: the file may change later, which is then noticed."""
        if not self.clients:
            with suppress(UserError):  # it is said where the data are split
                object.__setattr__(self, "clients", len(self._pieces()))

    def _pieces(self) -> list[Indices]:
        try:
            lists = json.loads(read_text(located(self.path)))
            pieces = [np.array(positions, dtype=object).astype(np.int64) for positions in lists]
            good = all(isinstance(piece, list) and all(type(i) is int for i in piece) for piece in lists)
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(
                f"partition.path: {self.path} is not a JSON list of lists of positions ({error})."
            ) from None
        if not good:
            raise UserError(f"partition.path: {self.path} must hold nothing but lists of whole numbers.")
        return pieces

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        pieces = self._pieces()
        if len(pieces) != self.clients:
            raise UserError(
                f"partition.path: {self.path} holds {len(pieces)} clients, partition.clients says {self.clients}; "
                "make them agree."
            )
        for client, piece in enumerate(pieces):
            if not len(piece) or piece.min() < 0 or piece.max() >= len(labels) or len(set(piece)) != len(piece):
                raise UserError(
                    f"partition.path: client {client} in {self.path} must have different positions "
                    f"between 0 and {len(labels) - 1}, at least one."
                )
        return _fixed(pieces, labels, classes)


@parameters
class Listed(Partition):
    """Client i holds the classes listed for it, and takes the next n_i/N samples of each, in the order of the data.

    The last class takes the remainder. Where fewer are left of a class, its first sample is the next one again.
    """

    name = "listed"
    classes: Annotated[
        tuple[Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)], ...],
        Field(min_length=1, description="for each client the classes it holds, such as [[0,1],[1,2]]"),
    ]
    samples: Annotated[int, Field(ge=1, description="samples a client holds (n_i)")] = 1000
    clients: Annotated[
        int, Field(ge=0, le=10_000_000, description="how many clients there are (m); 0: as many as are listed")
    ] = 0

    def __post_init__(self) -> None:
        if not self.clients:
            object.__setattr__(self, "clients", len(self.classes))

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        if self.clients != len(self.classes):
            raise UserError(
                f"partition.classes lists {len(self.classes)} clients, partition.clients says {self.clients}; "
                "make them agree."
            )
        pools = [np.flatnonzero(labels == c) for c in range(classes)]
        used, pieces = [0] * classes, []
        for client, held in enumerate(self.classes):
            sizes = _shares(self.samples, len(held))
            if len(set(held)) < len(held) or max(held) >= classes or not all(sizes):
                raise UserError(
                    f"partition.classes: client {client} must hold different classes between 0 and {classes - 1}, "
                    f"no more than its {self.samples} samples."
                )
            for c, size in zip(held, sizes, strict=True):
                if size > len(pools[c]):
                    raise UserError(
                        f"partition: {size} samples of class {c} are more than the {len(pools[c])} in the data; "
                        "lower partition.samples."
                    )
                used[c] = size + (used[c] if used[c] + size <= len(pools[c]) else 0)
            pieces.append(np.concatenate([pools[c][used[c] - n : used[c]] for c, n in zip(held, sizes, strict=True)]))
        return _fixed(pieces, labels, classes)


@parameters
class Natural(Partition):
    """The data say whose each sample is: a column of `hf:` data, `client_train` in an `.npz`, folders of clients."""

    name = "natural"
    by_position = True
    clients: Annotated[
        int, Field(ge=0, le=10_000_000, description="how many of the clients, the first ones; 0: all")
    ] = 0
    column: Annotated[
        str, Field(description="the column, or array, that says whose a sample is; found if not given")
    ] = ""

    def split(self, labels: Indices, classes: int, seed: int) -> Split:
        raise UserError(
            "partition = 'natural': these data do not say whose each sample is; an .npz says it by an array "
            "client_train, a folder by clients/CLIENT/CLASS, hf: data by a column (partition.column)."
        )

    def split_owned(self, owners: Indices, labels: Indices, classes: int) -> Split:
        """`owners` are the clients' numbers, one for each sample."""
        there = int(owners.max()) + 1
        if self.clients > there:
            raise UserError(f"partition.clients = {self.clients}: the data are those of {there} clients; take fewer.")
        order = np.argsort(owners, kind="stable")
        pieces = np.split(order, np.cumsum(np.bincount(owners))[:-1])
        return _fixed(pieces[: self.clients or there], labels, classes)


KINDS: Kinds[type[Partition]] = Kinds(
    "partition",
    {kind.name: kind for kind in (Pathological, Clustered, Even, Dirichlet, Iid, Listed, File, Natural)},
    no_subclass(Partition),
)


def split_by(partition: Partition, labels: Indices, classes: int, seed: int, owners: Indices | None = None) -> Split:
    """Who holds what, by this partition; what one that is own code gives back is looked at.

    `owners` says whose each sample is, where the data do.
    """
    if isinstance(partition, Natural) and owners is not None:
        return partition.split_owned(owners, labels, classes)
    if type(partition) in KINDS.values():
        return partition.split(labels, classes, seed)
    what = f"partition: split() of {address_of(type(partition))}"
    with explained(what):
        split = partition.split(labels, classes, seed)
        if not isinstance(split, Split):
            raise TypeError(f"it gave back a {type(split).__name__} where a rebafl.Split is needed")
        if split.clients != partition.clients or split.classes != classes:
            raise ValueError(
                f"it gave back {split.clients} clients and {split.classes} classes where {partition.clients} and "
                f"{classes} are needed"
            )

    def indices(client: int) -> Indices:
        with explained(what):
            held = np.asarray(split.indices(client))
            if held.ndim != 1 or held.dtype.kind not in "ui" or not len(held):
                raise TypeError(f"client {client} must hold a list of positions, at least one")
            if held.min() < 0 or held.max() >= len(labels):
                raise ValueError(f"client {client} must hold positions between 0 and {len(labels) - 1}")
            if len(np.unique(held)) != len(held):
                raise ValueError(f"client {client} holds a position more than once")
            return held.astype(np.int64)

    for client in range(min(split.clients, CHECKED)):  # while training, a mistake would only cost a client's upload
        indices(client)
    return Split(split.clients, classes, labels, indices)


def pooled(split: Split) -> Split:
    """All that clients hold, each sample once, in the hands of a single one."""
    held = np.zeros(len(split.labels), dtype=bool)
    for client in range(split.clients):
        held[split.indices(client)] = True
        if client % 1000 == 999 and held.all():
            break
    return _fixed([np.flatnonzero(held)], split.labels, split.classes)


def _fixed(pieces: list[Indices], labels: Indices, classes: int) -> Split:
    ordered = [np.sort(piece) for piece in pieces]
    return Split(len(ordered), classes, labels, ordered.__getitem__)


def _draw(labels: Indices, classes: int, seed: int, clients: int, samples: int, per_group: tuple[int, ...]) -> Split:
    """Clients that draw for themselves: the answer for one client costs nothing for the others."""
    pools = [np.flatnonzero(labels == c) for c in range(classes)]
    if empty := [c for c, pool in enumerate(pools) if not len(pool)]:
        raise UserError(f"partition: the training data have no sample of class {empty[0]}, so clients cannot draw it.")
    for held in per_group:
        most = _shares(samples, held)[-1]
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
        sizes = _shares(samples, held)
        own = random.choice(classes, size=held, replace=False)
        return np.sort(np.concatenate([
            random.choice(pools[c], size=size, replace=False) for c, size in zip(own, sizes, strict=True)
        ]))  # fmt: skip

    return Split(clients, classes, labels, indices)


def _shares(samples: int, held: int) -> list[int]:
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
