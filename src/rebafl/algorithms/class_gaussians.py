"""How do the classes lie in the space of features, though some were not seen this round, and which head follows?

Each class is a Gaussian; all share one covariance. The extractor changes every round, and with it every mean. Those of
classes that nobody showed are moved as the others' movement suggests, and weigh less the longer they were not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..base.tensors import Tensors

MEMORY = 0.8
"""How much of the covariance stays from round to round."""
RIDGE = 0.1
"""How firmly the movement of means is taken to be the same for all classes."""
UNCERTAINTY = 1e-3
"""How much surer a class's mean was a round ago, as the variance of a mean of 1,000 images is."""
SHRINK = 3e-3
"""How much the covariance is pulled towards a ball, so that it can be inverted."""
UNKNOWN = 1e6
NEVER = 100.0
"""By how much a class that nobody has shown yet is less likely, as a logarithm."""


class Gaussians(NamedTuple):
    """Means by class, their variance in units of one image's, and the covariance within a class."""

    means: Tensor
    variance: Tensor
    scatter: Tensor


def first_guess(classes: int, features: int) -> Gaussians:
    """Before any class was seen."""
    zeros = torch.zeros(classes, features, dtype=torch.float64)
    return Gaussians(zeros, torch.full((classes,), UNKNOWN, dtype=torch.float64), zeros.new_zeros(features, features))


def within_class_scatter(features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """The covariance around the classes' means, over all samples; half of it, row by row."""
    apart = (features - means[labels]).to(torch.float64)
    whole = apart.T @ apart / len(labels)
    rows, columns = _half(len(whole))
    return whole[rows, columns].to(features.dtype)


def _half(features: int) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(features, features)
    return rows, columns


def track(before: Gaussians, seen: Tensor, counts: Tensor, seen_scatter: Tensor) -> Gaussians:
    """The Gaussians after a round in which clients showed these means, of so many images, and this covariance."""
    means, variance, scatter = before
    seen, shown, known = seen.to(torch.float64), counts > 0, variance < UNKNOWN
    means = means.clone()
    if bool((shown & known).any()):
        means[known], scatter = carried(means[known], scatter, means[shown & known], seen[shown & known])
    variance = torch.where(known, variance + UNCERTAINTY, variance)
    number = counts.to(torch.float64).clamp(min=1)
    gain = torch.where(known, variance / (variance + 1 / number), 1.0)
    means[shown] += gain[shown, None] * (seen[shown] - means[shown])
    variance = torch.where(shown, 1 / (number + torch.where(known, 1 / variance, 0.0)), variance)
    fresh = _whole(seen_scatter.to(torch.float64), len(scatter))
    return Gaussians(means, variance, MEMORY * scatter + (1 - MEMORY) * fresh if bool(known.any()) else fresh)


def carried(means: Tensor, scatter: Tensor, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Means and covariance, moved as the means that were seen moved from `before` to `after`.

    The movement is a shift and a linear map, by ridge regression in the covariance's own metric. With so few classes
    the map is found only within their span; RIDGE keeps it small.
    """
    centre, shift = before.mean(0), (after - before).mean(0)
    apart = before - centre
    whitened = torch.linalg.solve(_invertible(scatter), apart.T)
    gram = apart @ whitened
    ridge = RIDGE * gram.trace() / len(gram) + 1e-12
    change = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), after - before - shift)
    turn = torch.eye(len(scatter), dtype=scatter.dtype) + whitened @ change
    return centre + shift + (means - centre) @ turn, turn.T @ scatter @ turn


def _invertible(scatter: Tensor) -> Tensor:
    ball = SHRINK * scatter.diagonal().mean() + 1e-12
    return scatter + ball * torch.eye(len(scatter), dtype=scatter.dtype)


def _whole(half: Tensor, features: int) -> Tensor:
    rows, columns = _half(features)
    whole = half.new_zeros(features, features)
    whole[rows, columns] = half
    whole[columns, rows] = half
    return whole


def linear_head(gaussians: Gaussians, like: Tensors) -> Tensors:
    """The head of linear discriminant analysis, every class as likely as the others, in these names and shapes."""
    means, variance, scatter = gaussians
    known = variance < UNKNOWN
    centre = means[known].mean(0) if bool(known.any()) else means.mean(0)
    apart = torch.where(known[:, None], means - centre, 0.0)
    weight = torch.linalg.solve(_invertible(scatter), apart.T).T
    bias = -(weight * apart).sum(1) / 2 - weight @ centre
    bias = torch.where(known, bias, bias.min() - NEVER)
    if all(tensor.dim() == 2 for tensor in like.values()):
        weight = weight + bias[:, None] * _nearly_one(means[known], scatter)
    return {name: (weight if tensor.dim() == 2 else bias).to(tensor.dtype) for name, tensor in like.items()}


def _nearly_one(means: Tensor, scatter: Tensor) -> Tensor:
    """The direction in which features are nearest to the constant 1: what a head without bias has in its place."""
    moment = scatter + means.T @ means / max(1, len(means))
    ball = 1e-6 * moment.diagonal().mean() + 1e-12
    target = means.mean(0) if len(means) else means.sum(0)
    direction: Tensor = torch.linalg.solve(moment + ball * torch.eye(len(scatter), dtype=scatter.dtype), target)
    return direction
