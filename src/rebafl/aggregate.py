"""What does the server make of uploads? It refuses what cannot be right and averages the rest.

Means are taken over named tensors in client-id order, accumulated in float64 and cast once, so that
neither the order of arrival nor the number of workers can change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .tensors import Tensors, size


@dataclass(frozen=True)
class Upload:
    """What leaves a device: how the weights changed, what is shared besides, and the class counts."""

    client: int
    change: Tensors
    counts: Tensor
    shared: Tensors = field(default_factory=dict)

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def bytes(self) -> int:
        return size(self.change) + size(self.shared) + size({"counts": self.counts})


def refusal(
    upload: Upload,
    change: Tensors,
    shared: Tensors,
    classes: int,
    most_samples: int,
    most_norm: float = math.inf,
    most_value: float = math.inf,
) -> str | None:
    """Why an upload cannot be used, or None. `change` and `shared` show the shapes that are expected.

    `most_norm` bounds the Euclidean length of the change of all weights together, `most_value` every number.
    """
    counts = upload.counts
    if counts.shape != (classes,) or counts.dtype != torch.int64:
        return f"class counts of shape {tuple(counts.shape)} and type {counts.dtype}"
    each = counts.tolist()  # Python's numbers: a sum of int64 may overflow to something harmless
    if min(each) < 0 or not 0 < sum(each) <= most_samples:
        return f"impossible class counts {each}"
    if reason := mismatch(upload.change, change, most_value):
        return f"weights: {reason}"
    if most_norm < math.inf and (norm := length(upload.change)) > most_norm:
        return f"weights: they moved by {norm:.4g}, more than {most_norm:.4g}"
    reason = mismatch(upload.shared, shared, most_value)
    return f"shared values: {reason}" if reason else None


def mismatch(found: Tensors, expected: Tensors, most_value: float = math.inf) -> str | None:
    """How some tensors differ from what they should look like, or None; all must be finite, and not too large."""
    if unlike := sorted(found.keys() ^ expected.keys()):
        more = f" and {len(unlike) - 3} more" if len(unlike) > 3 else ""
        return f"missing or unknown {', '.join(unlike[:3])}{more}"
    for name, tensor in found.items():
        like = expected[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            return f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {like.dtype} {tuple(like.shape)}"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity"
        if most_value < math.inf and (largest := _largest(tensor)) > most_value:
            return f"{name} holds a value of {largest:.4g}, more than {most_value:.4g}"
    return None


def _largest(tensor: Tensor) -> float:
    """The largest magnitude; in float64, where the lowest int64 has one too."""
    return float(tensor.to(torch.float64).abs().max()) if tensor.numel() else 0.0


def length(tensors: Tensors) -> float:
    """The Euclidean norm of all these tensors as one vector."""
    return math.sqrt(math.fsum(float(each.to(torch.float64).square().sum()) for each in tensors.values()))


def weighted_mean(tensors: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
    """Σ weight * tensor / Σ weight for each name, in the order given, in float64."""
    total = float(sum(weights))
    mean: Tensors = {}
    for name in tensors[0]:
        mean[name] = torch.zeros_like(tensors[0][name], dtype=torch.float64, memory_format=torch.contiguous_format)
        for each, weight in zip(tensors, weights, strict=True):
            mean[name].add_(each[name].to(torch.float64), alpha=weight / total)
    return mean


def moved(weights: Tensors, change: Tensors, scale: float = 1.0) -> Tensors:
    """weights + scale * change, cast once; what has no change stays as it is; counters are rounded."""
    result = dict(weights)
    for name, delta in change.items():
        exact = weights[name] + scale * delta  # in float64, as the change is
        result[name] = (exact if weights[name].is_floating_point() else exact.round()).to(weights[name].dtype)
    return result
