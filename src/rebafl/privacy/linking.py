"""Does shuffling hide who sent an upload? Uploads of two rounds are matched by held classes and by their direction.

A shuffled upload has no name, but it has class counts and a change of the weights. The attacker knows one upload of a
client and looks for it among all uploads of another round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from ..algorithms.aggregate import Upload
from ..base.rng import generator
from ..models.contract import part_of
from .measures import Estimate, Numbers, estimate

Similarity = Callable[[Upload, Upload], float]
WAYS = ("held classes", "direction of the change", "both")


def by_classes(a: Upload, b: Upload) -> float:
    """One where two uploads hold the same classes, else less by every class that differs."""
    return 1.0 - float(((a.counts > 0) != (b.counts > 0)).float().sum())


def by_direction(a: Upload, b: Upload) -> float:
    """The cosine between the changes of the heads, in which class skew shows most."""
    x, y = _head(a), _head(b)
    return float(x @ y / (x.norm() * y.norm()).clamp(min=1e-30))


def by_both(a: Upload, b: Upload) -> float:
    return by_classes(a, b) + 0.5 * by_direction(a, b)


SIMILARITIES: Mapping[str, Similarity] = dict(zip(WAYS, (by_classes, by_direction, by_both), strict=True))


def _head(upload: Upload) -> Tensor:
    head = [tensor.double().flatten() for name, tensor in upload.change.items() if part_of(name) == "head"]
    return torch.cat(head or [tensor.double().flatten() for tensor in upload.change.values()])


def link(rounds: Sequence[Mapping[int, Upload]], similar: Similarity) -> tuple[Estimate, float]:
    """How often a client is found again, over clients, and how often by guessing; ties are guessed among."""
    hits: dict[int, list[float]] = {}
    chances = []
    for first, second in permutations(rounds, 2):
        for client in first.keys() & second.keys():
            scores: Numbers = np.array([similar(first[client], upload) for upload in second.values()])
            best = np.flatnonzero(scores >= scores.max() - 1e-9)
            place = list(second).index(client)
            hits.setdefault(client, []).append(1 / len(best) if place in best else 0.0)
            chances.append(1 / len(second))
    return estimate([float(np.mean(some)) for some in hits.values()]), float(np.mean(chances)) if chances else 1.0


def positive_control(rounds: Sequence[Mapping[int, Upload]], similar: Similarity, seed: int = 0) -> Estimate:
    """Each round against a copy of itself with a tenth of noise on every change: here all must be found."""
    found: dict[int, list[float]] = {}
    for number, uploads in enumerate(rounds):
        copy = {client: _noisy(upload, number, seed) for client, upload in uploads.items()}
        for client in uploads:
            scores = np.array([similar(uploads[client], other) for other in copy.values()])
            best = np.flatnonzero(scores >= scores.max() - 1e-9)
            hit = 1 / len(best) if list(copy).index(client) in best else 0.0
            found.setdefault(client, []).append(hit)
    return estimate([float(np.mean(some)) for some in found.values()])


def _noisy(upload: Upload, number: int, seed: int) -> Upload:
    random = generator(seed, "privacy linking", number, upload.client)
    change = {
        name: tensor + 0.1 * tensor.double().std().nan_to_num() * torch.from_numpy(random.standard_normal(tensor.shape))
        for name, tensor in upload.change.items()
    }
    return Upload(upload.client, change, upload.counts, upload.shared)


def negative_control(
    rounds: Sequence[Mapping[int, Upload]], similar: Similarity, seed: int = 0
) -> tuple[Estimate, float]:
    """Names drawn anew in every round: nobody can be found again."""
    renamed = []
    for number, uploads in enumerate(rounds):
        names = list(uploads)
        order = generator(seed, "privacy renaming", number).permutation(len(names))
        renamed.append({names[place]: upload for place, upload in zip(order, uploads.values(), strict=True)})
    return link(renamed, similar)
