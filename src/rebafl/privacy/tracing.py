"""Was this image part of that mean? The classical tracing attack on exact means of k feature vectors.

With μ and Σ of public images of the class, and p the mean of k images' features,
score(x) = (f(x)−μ)ᵀΣ⁻¹(p−μ) − ‖f(x)−μ‖²_{Σ⁻¹}/2k is the log-likelihood ratio, up to a constant, of "x is one of the k"
against "x is not", for Gaussian features and large k. Nothing is trained. Of means with noise see `blur`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..base.rng import generator
from ..population.partition import Indices
from .blur import EXACT, Blur
from .measures import FPR, Estimate, Numbers, auc, estimate, tpr_at

KS = (1, 2, 5, 10, 50, 100, 500)
MOST_GROUPS = 20
SHRINKAGE = 1e-3
"""Share of the mean variance that is added to every direction, so that none is divided by zero."""

Score = Callable[[Numbers, Numbers, int], Numbers]
"""Whitened features (one row per image), the whitened mean, and k -> one score per image."""


def tracing_score(images: Numbers, mean: Numbers, k: int) -> Numbers:
    out: Numbers = images @ mean - (images**2).sum(1) / (2 * k)
    return out


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which public images of a class have mean zero and unit covariance."""

    mean: Numbers
    map: Numbers

    def __call__(self, features: Tensor | Numbers) -> Numbers:
        rows = np.asarray(features, dtype=np.float64)
        out: Numbers = (rows - self.mean) @ self.map
        return out


def whitening(public: Tensor | Numbers, shrinkage: float = SHRINKAGE) -> Whitening:
    """From features of public images of the class; few images shrink more, by one direction's share of them."""
    rows = np.asarray(public, dtype=np.float64)
    mean = rows.mean(0)
    centred = rows - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / max(1, len(rows) - 1))
    values = np.maximum(values, 0)
    share = max(shrinkage, 1.0 if len(rows) <= rows.shape[1] else 0.0)
    ridge = max(share * float(values.mean()), 1e-12)
    return Whitening(mean, vectors / np.sqrt(values + ridge))


@dataclass(frozen=True)
class Target:
    """One client's images of one class in one round, as an attacker sees them.

    `uploaded` are the (clipped) features, under the client's own model, that a mean is made of; the other three are
    whitened, under the model that the attacker has: of those same images, of fake members (public images that are in
    no mean), and of non-members (other public images).
    """

    client: int
    label: int
    round: int
    uploaded: Numbers
    whiten: Whitening
    members: Numbers
    fakes: Numbers
    others: Numbers


@dataclass(frozen=True)
class Traced:
    """How well one mean, or one mean in each of several rounds, is traced."""

    auc: float
    tpr: float
    fake_auc: float
    permuted_auc: float


def trace(
    targets: Sequence[Target],
    means: Sequence[Numbers],
    rows: Indices,
    k: int,
    fpr: float = FPR,
    score: Score = tracing_score,
    seed: int = 0,
    blur: Blur = EXACT,
    holders: int = 1,
) -> Traced:
    """Attack the means (one per round, of the same images) of the images at `rows`; scores of rounds are added up.

    Each mean is of k images of so many `holders`, each of whom blurred its own.
    """
    maps = [blur.sharpening(target.whiten.mean, target.whiten.map, k, holders) for target in targets]
    whitened = [target.whiten(mean[None])[0] for target, mean in zip(targets, means, strict=True)]
    permuted = [_permuted(p, target, seed) for p, target in zip(whitened, targets, strict=True)]

    def total(part: Callable[[Target], Numbers], against: Sequence[Numbers]) -> Numbers:
        scores = [
            score(_seen(part(target), sharpen), _seen(p, sharpen), k)
            for target, p, sharpen in zip(targets, against, maps, strict=True)
        ]
        out: Numbers = np.sum(scores, axis=0)
        return out

    members, others = total(lambda t: t.members[rows], whitened), total(lambda t: t.others, whitened)
    fakes = total(lambda t: t.fakes, whitened)
    wrong, wrong_others = total(lambda t: t.members[rows], permuted), total(lambda t: t.others, permuted)
    return Traced(auc(members, others), tpr_at(members, others, fpr), auc(fakes, others), auc(wrong, wrong_others))


def _seen(rows: Numbers, sharpen: Numbers | None) -> Numbers:
    return rows if sharpen is None else rows @ sharpen


def _permuted(p: Numbers, target: Target, seed: int) -> Numbers:
    return p[generator(seed, "privacy permutation", target.round, target.client).permutation(len(p))]


@dataclass(frozen=True)
class Leakage:
    """What tracing reaches at some k: over clients, with both negative controls."""

    k: int
    auc: Estimate
    tpr: Estimate
    fakes: Estimate
    permuted: Estimate
    means: int


def leakage(
    groups: Mapping[tuple[int, int], Sequence[Target]],
    k: int,
    fpr: float = FPR,
    score: Score = tracing_score,
    seed: int = 0,
    blur: Blur = EXACT,
) -> Leakage | None:
    """Means of k of a client's images each; `groups` has for (client, class) the rounds to combine. None: too few."""
    traced: dict[int, list[Traced]] = {}
    for (client, label), targets in groups.items():
        random = generator(seed, f"privacy blur of class {label}", k, client)
        for rows in disjoint(len(targets[0].members), k, seed, client, label):
            means = [blur.mean(target.uploaded[rows], random) for target in targets]
            traced.setdefault(client, []).append(trace(targets, means, rows, k, fpr, score, seed, blur))
    return over_clients(traced, k, seed, non_members(targets[0] for targets in groups.values()))


def whole(
    groups: Mapping[tuple[int, int], Sequence[tuple[Target, Numbers]]],
    fpr: float = FPR,
    score: Score = tracing_score,
    seed: int = 0,
    blur: Blur = EXACT,
) -> Leakage | None:
    """The means that were really sent, each with its target; k is what each client holds."""
    traced: dict[int, list[Traced]] = {}
    sizes = []
    for (client, _), pairs in groups.items():
        targets, means = [target for target, _ in pairs], [mean for _, mean in pairs]
        rows = np.arange(len(targets[0].members))
        sizes.append(len(rows))
        traced.setdefault(client, []).append(trace(targets, means, rows, len(rows), fpr, score, seed, blur))
    shared = non_members(pairs[0][0] for pairs in groups.values())
    return over_clients(traced, int(np.median(sizes)) if sizes else 0, seed, shared)


def non_members(targets: Iterable[Target]) -> int:
    """How many there are in all classes: clients of one class share them."""
    by_class: dict[int, int] = {}
    for target in targets:
        by_class[target.label] = max(by_class.get(target.label, 0), len(target.others))
    return sum(by_class.values())


def over_clients(traced: Mapping[int, Sequence[Traced]], k: int, seed: int = 0, shared: int = 0) -> Leakage | None:
    """One number per client first, then over clients; `shared`: how many non-members they are all held against."""
    if not traced:
        return None

    def over(name: str, shared: int = 0) -> Estimate:
        return estimate([float(np.mean([getattr(t, name) for t in some])) for some in traced.values()], seed, shared)

    means = sum(map(len, traced.values()))
    return Leakage(k, over("auc", shared), over("tpr"), over("fake_auc"), over("permuted_auc", shared), means)


def disjoint(count: int, k: int, seed: int, client: int, label: int, most: int = MOST_GROUPS) -> list[Indices]:
    """Some disjoint groups of k images, the same in every round."""
    order = generator(seed, f"privacy groups of class {label}", k, client).permutation(count)
    return [order[first : first + k] for first in range(0, min(count - k + 1, most * k), k)]


def synthetic(
    dimensions: int,
    k: int,
    clients: int = 20,
    others: int = 1000,
    seed: int = 0,
    score: Score = tracing_score,
    blur: Blur = EXACT,
) -> Leakage:
    """The control whose answer is known: independent Gaussian coordinates, with AUC Φ(√(d/2k)) for large d and k."""
    groups: dict[tuple[int, int], list[Target]] = {}
    for client in range(clients):
        random = generator(seed, "privacy synthetic", k, client)
        draw = random.standard_normal
        public = whitening(blur.clipped(draw((max(4000, 20 * dimensions), dimensions))), shrinkage=0.0)
        own = blur.clipped(draw((max(k, min(2 * k, 200)), dimensions)))
        outside = (public(blur.clipped(draw((n, dimensions)))) for n in (200, others))
        groups[client, client] = [Target(client, client, 1, own, public, public(own), *outside)]
    found = leakage(groups, k, score=score, seed=seed, blur=blur)
    assert found is not None
    return found
