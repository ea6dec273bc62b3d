"""Which sample belongs to which client, where nothing is drawn: by lists of classes, by a file, or as the data say."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated

import numpy as np
from pydantic import Field

from ..base.config import parameters
from ..base.errors import UserError
from ..base.reading import located, read_text
from .partition import Indices, Partition, Split, fixed, shares


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
            sizes = shares(self.samples, len(held))
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
        return fixed(pieces, labels, classes)


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
        return fixed(pieces, labels, classes)


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
        return fixed(pieces[: self.clients or there], labels, classes)
