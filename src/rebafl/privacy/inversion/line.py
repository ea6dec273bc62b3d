"""How much of a picture does a straight line find in a mean of features? Least squares on public pictures.

Features of different models have different coordinates. The line leads from each to the same ones, the principal
components of the public pictures, so that what is learned about one model's features serves for the next one's.

The best line is the same for every k: if E[x | f(x)] = Wf(x) + b, the mean picture of k images is W p + b on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...models.contract import CHUNK
from .contract import Known

COMPONENTS = 128
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


def components(pictures: Tensor, most: int = COMPONENTS) -> Components:
    mean = pictures.mean(0)
    centred = (pictures - mean).flatten(1)
    rows = centred if len(centred) <= centred.shape[1] else centred.T @ centred
    vectors = torch.linalg.svd(rows, full_matrices=False).Vh
    return Components(mean, vectors[: min(most, len(pictures) - 1)].contiguous())


@dataclass(frozen=True)
class Line:
    """From features to coefficients of pictures: a guess that is right on average; `spread` is its usual size."""

    centre: Tensor
    map: Tensor
    spread: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return ((features.double() - self.centre) @ self.map).float()


def line(features: Tensor, coefficients: Tensor) -> Line:
    """Least squares; how much to shrink is tried on a fifth of the pictures that the line is not drawn from."""
    x, y = features.double(), coefficients.double()
    cut = max(1, len(x) // 5)
    centre = x[cut:].mean(0)
    inner, outer = _products(x[cut:] - centre, y[cut:])
    usual = float(inner.diagonal().mean().clamp(min=1e-30))
    errors = [float(((x[:cut] - centre) @ _solved(inner, outer, r * usual) - y[:cut]).square().mean()) for r in RIDGES]
    best = RIDGES[errors.index(min(errors))]
    centre = x.mean(0)
    inner, outer = _products(x - centre, y)
    found = _solved(inner, outer, best * usual)
    return Line(centre, found, ((x - centre) @ found).std(0).clamp(min=1e-6).float())


def _products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.T @ x, x.T @ (y - y.mean(0))


def _solved(inner: Tensor, outer: Tensor, ridge: float) -> Tensor:
    return torch.linalg.solve(inner + ridge * torch.eye(len(inner), dtype=inner.dtype), outer)


@torch.no_grad()
def features_of(known: Known) -> Tensor:
    return torch.cat([known.features(part) for part in torch.split(known.pictures, CHUNK)])
