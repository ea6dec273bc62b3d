"""What would the same round have made of other images? Models like a client's, and models that overfit on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from ..algorithms.aggregate import moved
from ..algorithms.interface import Sent
from ..base.rng import generator
from ..base.tensors import Tensors
from ..population.partition import Indices
from ..training.client_work import Work
from ..training.protections import NONE
from . import membership
from .measures import auc
from .views import Eye, Pool

CONTROLS = 6  # models that are overfitted on purpose
COMPARED = 300  # non-members of each class that these are tried on


def retrained(work: Work, eye: Eye, sent: Sent, round: int, client: int, index: Indices) -> Tensors:
    """The model that a client's round makes of these images; without noise, which nobody else can draw."""
    protect = replace(work.protect, noise=0.0, update_noise=0.0, central_noise=0.0, budget=0.0)
    other = replace(work, split=replace(work.split, indices=lambda _: index), protect=protect)
    upload, _ = other.train(eye.net, sent, client, round, None)
    return moved(sent.weights, {name: tensor.to(torch.float64) for name, tensor in upload.change.items()})


def overfitted(
    work: Work, eye: Eye, sent: Sent, round: int, pools: Mapping[int, Pool], seed: int
) -> dict[str, list[float]]:
    """The positive control of membership: AUCs for models that saw two public images of each class 300 times."""
    found: dict[str, list[float]] = {}
    hard = replace(work.training, epochs=300, batch=8, weight_decay=0.0, transform="none")
    for number in range(CONTROLS):
        random = generator(seed, "privacy overfitted", 0, number)
        few = {label: random.permutation(pool.reference)[:2] for label, pool in pools.items()}
        eye.load(sent.weights)
        before = {label: (eye.both(few[label]), eye.both(pools[label].held_out[:COMPARED])) for label in few}
        seen = np.concatenate(list(few.values()))
        weights = retrained(replace(work, training=hard, protect=NONE), eye, sent, round, number, seen)
        eye.load(weights)
        change = {name: weights[name] - sent.weights[name] for name in weights}
        told: dict[str, list[float]] = {}
        for label, (own, public) in before.items():
            members = membership.scores(own, eye.both(few[label])[1], label, change)
            others = membership.scores(public, eye.both(pools[label].held_out[:COMPARED])[1], label, change)
            for way, score in members.items():
                told.setdefault(way, []).append(auc(score, others[way]))
        for way, aucs in told.items():
            found.setdefault(way, []).append(float(np.mean(aucs)))
    return found
