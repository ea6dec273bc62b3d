"""Which partitions are there, and does one that is own code answer as it must?"""

from __future__ import annotations

import numpy as np

from ..base.kinds import Kinds, address_of, explained, no_subclass
from .given import File, Listed, Natural
from .partition import Clustered, Dirichlet, Even, Iid, Indices, Partition, Pathological, Split

CHECKED = 1000  # clients of an own partition that are looked at before a run begins

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
