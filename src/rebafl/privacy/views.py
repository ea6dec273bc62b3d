"""What does an attacker see of an image? Its features and logits under a model that the attacker knows.

Public images of each class are divided once: some to learn μ and Σ from, the others held out, to be fake members and
non-members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..base.rng import generator
from ..base.tensors import Tensors
from ..data import Data
from ..models.contract import Classifier, evaluating, extract, load_weights
from ..population.partition import Indices
from .blur import EXACT, Blur
from .measures import Numbers
from .tracing import Target, Whitening, whitening

MOST_PUBLIC = 2000
"""Of each class, for each of the two purposes."""
ENOUGH_HELD_OUT = 1250


@dataclass(frozen=True)
class Pool:
    """Public images of one class, by their positions: to learn from, and held out."""

    reference: Indices
    held_out: Indices

    def fakes_and_others(self, client: int, label: int, seed: int) -> tuple[Indices, Indices]:
        """Places among the held out: a fifth is fake members, drawn anew for each client, so that clients differ."""
        order = generator(seed, f"privacy fakes of class {label}", 0, client).permutation(len(self.held_out))
        fakes = min(300, len(order) // 5)
        return order[:fakes], order[fakes:]


def pools(labels: Indices, public: Indices, classes: int, dimensions: int, seed: int) -> dict[int, Pool]:
    """Of every class of which there are public images at all."""
    divided = {}
    for label in range(classes):
        some = generator(seed, "privacy public", 0, label).permutation(public[labels[public] == label])
        if len(some) >= 20:
            held_out = min(MOST_PUBLIC, max(len(some) // 2, min(ENOUGH_HELD_OUT, len(some) - 3 * dimensions)))
            divided[label] = Pool(some[held_out : held_out + MOST_PUBLIC], some[:held_out])
    return divided


@dataclass(frozen=True)
class Eye:
    """A model with which images are looked at."""

    net: Classifier
    data: Data

    def load(self, weights: Tensors) -> None:
        load_weights(self.net, weights)

    def features(self, index: Indices) -> Tensor:
        chunks = [
            extract(self.net, self.data.inputs(self.data.x_train[torch.from_numpy(part)]))
            for part in np.array_split(index, max(1, -(-len(index) // 500)))
        ]
        return torch.cat(chunks)

    def logits(self, features: Tensor) -> Tensor:
        with evaluating(self.net):
            out: Tensor = self.net.head(features)
        return out

    def both(self, index: Indices) -> tuple[Tensor, Tensor]:
        """Features and logits of the images at these positions."""
        features = self.features(index)
        return features, self.logits(features)


@dataclass(frozen=True)
class ClassView:
    """One class under one model: the whitening, and the held-out images' features, plain and whitened."""

    whiten: Whitening
    held_out: Tensor
    whitened: Numbers


def class_views(eye: Eye, divided: Mapping[int, Pool], labels: list[int], blur: Blur = EXACT) -> dict[int, ClassView]:
    """Classes under the model that is loaded, their features clipped as clients clip theirs before a mean is taken."""
    views = {}
    for label in labels:
        whiten = whitening(blur.clipped(eye.features(divided[label].reference)))
        held_out = eye.features(divided[label].held_out)
        views[label] = ClassView(whiten, held_out, whiten(blur.clipped(held_out)))
    return views


def target_of(
    view: ClassView,
    pool: Pool,
    client: int,
    label: int,
    round: int,
    uploaded: Tensor,
    seen: Tensor,
    seed: int,
    blur: Blur = EXACT,
) -> Target:
    """`uploaded`: features of the client's images under its model; `seen`: under the attacker's."""
    fakes, others = pool.fakes_and_others(client, label, seed)
    return Target(
        client,
        label,
        round,
        blur.clipped(uploaded),
        view.whiten,
        view.whiten(blur.clipped(seen)),
        view.whitened[fakes],
        view.whitened[others],
    )


def joined(own: Data) -> Data:
    """Own data as one: the training part, which is private, and after it the test part, which is public."""
    x, y = torch.cat([own.x_train, own.x_test]), torch.cat([own.y_train, own.y_test])
    return replace(own, x_train=x, y_train=y)
