"""Which training samples does no client hold, so that a model can be chosen on them? Drawn before anything is split."""

from __future__ import annotations

import numpy as np

from ..base.errors import UserError
from ..base.rng import generator
from .partition import Indices, Partition, Split
from .splitting import split_by

PURPOSE = "validation"


def held_out(labels: Indices, classes: int, share: float, seed: int) -> Indices:
    """This share of each class, rounded; whoever has the data and the seed finds the same samples."""
    random = generator(seed, PURPOSE)
    chosen = []
    for c in range(classes):
        pool = np.flatnonzero(labels == c)
        chosen.append(random.choice(pool, size=round(share * len(pool)), replace=False) if len(pool) else pool)
    held = np.sort(np.concatenate(chosen))
    if not len(held) or len(held) == len(labels):
        raise UserError(
            f"validation = {share} of {len(labels)} training samples leaves nothing to choose a model on, or nothing "
            "to train with; take another share."
        )
    return held


def split_rest(
    partition: Partition, labels: Indices, classes: int, seed: int, held: Indices, owners: Indices | None = None
) -> Split:
    """Who holds what of the samples that were not held out, as positions in all of the training data."""
    if partition.by_position:
        return _without(split_by(partition, labels, classes, seed, owners), held)
    rest = np.delete(np.arange(len(labels)), held)
    split = split_by(partition, labels[rest], classes, seed)
    return Split(split.clients, classes, labels, lambda client: rest[split.indices(client)])


def _without(split: Split, held: Indices) -> Split:
    """A split that names positions means those of all the data: what is held out is taken away from its clients."""

    def indices(client: int) -> Indices:
        left = np.setdiff1d(split.indices(client), held)
        if not len(left):
            raise UserError(f"validation leaves no sample to client {client}; take a smaller share.")
        return left

    return Split(split.clients, split.classes, split.labels, indices)
