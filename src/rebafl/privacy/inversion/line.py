"""How much of a picture does a straight line find in a mean of features? Least squares on public pictures.

Features of different models have different coordinates. The line leads from each to the same ones, the principal
components of the public pictures, so that what is learned about one model's features serves for the next one's.

The best line is the same for every k: if E[x | f(x)] = Wf(x) + b, the mean picture of k images is W p + b on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...base.rng import generator, torch_stream
from ...models.contract import CHUNK
from .contract import Known

MOST_COMPONENTS = 512
MOST_FEATURES = 1024
"""Of more, which convolutions give, so many are looked at: neighbours say much the same."""
RIDGES = (1e-4, 1e-2, 1.0)
"""Shares of the features' mean variance that are added to every direction; tried on a fifth of the public pictures."""


@dataclass(frozen=True)
class Components:
    """The mean and the first principal components of public pictures."""

    mean: Tensor
    """One picture."""
    basis: Tensor
    """(components, pixels), of length one."""

    def of(self, pictures: Tensor) -> Tensor:
        return (pictures - self.mean).flatten(1) @ self.basis.T

    def deviations(self, coefficients: Tensor) -> Tensor:
        """Pictures less the mean picture."""
        return (coefficients @ self.basis).reshape(-1, *self.mean.shape)


def components(pictures: Tensor, most: int, seed: int) -> Components:
    mean = pictures.mean(0)
    centred = (pictures - mean).flatten(1)
    with torch_stream(seed, "inversion components"):
        vectors = torch.svd_lowrank(centred, min(most, len(centred) - 1, centred.shape[1]), niter=3)[2]
    return Components(mean, vectors.T.contiguous())


@dataclass(frozen=True)
class Line:
    """From features to coefficients of pictures: a guess that is right on average; `spread` is its usual size."""

    chosen: Tensor
    """Which features are looked at."""
    centre: Tensor
    map: Tensor
    spread: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return ((features[:, self.chosen].double() - self.centre) @ self.map).float()


def line(features: Tensor, coefficients: Tensor, seed: int) -> Line:
    """Least squares; how much to shrink is tried on a fifth of the pictures that the line is not drawn from."""
    order = generator(seed, "inversion features").permutation(features.shape[1])
    chosen = torch.from_numpy(np.sort(order[:MOST_FEATURES]))
    x, y = features[:, chosen].double(), coefficients.double()
    cut = max(1, len(x) // 5)
    centre = x[cut:].mean(0)
    maps = _solved(x[cut:] - centre, y[cut:], RIDGES)
    errors = [float(((x[:cut] - centre) @ found - y[:cut]).square().mean()) for found in maps]
    best = RIDGES[errors.index(min(errors))]
    centre = x.mean(0)
    found = _solved(x - centre, y, (best,))[0]
    return Line(chosen, centre, found, ((x - centre) @ found).std(0).clamp(min=1e-6).float())


def _solved(x: Tensor, y: Tensor, ridges: Sequence[float]) -> list[Tensor]:
    """For each ridge the map from rows of `x` to rows of `y`."""
    inner, outer = x.T @ x, x.T @ (y - y.mean(0))
    usual = inner.diagonal().mean().clamp(min=1e-30) * torch.eye(len(inner), dtype=inner.dtype)
    return [torch.linalg.solve(inner + ridge * usual, outer) for ridge in ridges]


@torch.no_grad()
def features_of(known: Known) -> Tensor:
    return torch.cat([known.features(part) for part in torch.split(known.pictures, CHUNK)])
