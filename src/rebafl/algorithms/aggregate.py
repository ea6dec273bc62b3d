"""What does the server make of uploads? It refuses what cannot be right and averages the rest.

Means are taken over named tensors in client-id order, accumulated in float64 and cast once, so that
neither the order of arrival nor the number of workers can change a bit. What all uploads of a round amount to, for an
algorithm that needs no more than that, are their `Means`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..base.tensors import Tensors, size

BLOCK = 2**20  # elements that are computed with at a time

Weight = Literal["samples", "classes", "clients"]
"""By what a tensor's mean is weighted: a client's samples; its samples of class c, for row c; or all clients alike."""


@dataclass(frozen=True)
class Upload:
    """What leaves a client: how the weights changed, what is shared besides, and the class counts.

    `weight` is the server's: what an upload counts for in a mean where its class counts do not say it.
    """

    client: int
    change: Mapping[str, Tensor]
    counts: Tensor
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    weight: int | None = None

    @property
    def samples(self) -> int:
        return int(self.counts.sum()) if self.weight is None else self.weight

    @property
    def bytes(self) -> int:
        return size(self.change) + size(self.shared) + size({"counts": self.counts})


@dataclass(frozen=True)
class Means:
    """What all uploads of a round amount to: means in float64, the class counts in all, and how many uploads."""

    change: Tensors
    shared: Tensors
    counts: Tensor
    uploads: int


def refusal(
    upload: Upload,
    change: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    classes: int,
    most_samples: int,
    most_norm: float = math.inf,
    most_value: float = math.inf,
    fewest_samples: int = 1,
) -> str | None:
    """Why an upload cannot be used, or None. `change` and `shared` show the shapes that are expected.

    `most_norm` bounds the Euclidean length of the change of all weights together, `most_value` every number.
    """
    counts = upload.counts
    if counts.shape != (classes,) or counts.dtype != torch.int64:
        return f"class counts of shape {tuple(counts.shape)} and type {counts.dtype}"
    numbers = counts.tolist()  # Python's own: a sum of int64 may overflow to something harmless
    if min(numbers) < 0 or not fewest_samples <= sum(numbers) <= most_samples:
        return f"impossible class counts {numbers}"
    if reason := mismatch(upload.change, change, most_value):
        return f"weights: {reason}"
    if most_norm < math.inf and (norm := euclidean_norm(upload.change)) > most_norm:
        return f"weights: they moved by {norm:.4g}, more than {most_norm:.4g}"
    reason = mismatch(upload.shared, shared, most_value)
    return f"shared values: {reason}" if reason else None


def mismatch(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], most_value: float = math.inf) -> str | None:
    """How some tensors differ from what they should look like, or None; all must be finite, and not too large."""
    return unlike(tensors, expected) or not_finite(tensors) or _too_large(tensors, most_value)


def unlike(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """How some tensors differ in names, shapes or types from what they should look like, or None."""
    if names := sorted(tensors.keys() ^ expected.keys()):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"missing or unknown {', '.join(names[:3])}{more}"
    for name, tensor in tensors.items():
        like = expected[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            return f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {like.dtype} {tuple(like.shape)}"
    return None


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Which of some tensors is not finite, or None."""
    return next((f"{name} holds NaN or infinity" for name, tensor in tensors.items() if not _finite(tensor)), None)


def _finite(tensor: Tensor) -> bool:
    """A finite sum has only finite terms; one that is not may still have overflowed, and is looked at closely.

    The close look takes several times the memory of the tensor.
    """
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def _too_large(tensors: Mapping[str, Tensor], most_value: float) -> str | None:
    """Which of some tensors holds a value beyond a bound, or None."""
    if most_value == math.inf:
        return None
    for name, tensor in tensors.items():
        if tensor.numel() and (largest := max(abs(float(end)) for end in tensor.aminmax())) > most_value:
            return f"{name} holds a value of {largest:.4g}, more than {most_value:.4g}"
    return None


def euclidean_norm(tensors: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of all these tensors as one vector."""
    return math.sqrt(math.fsum(float(tensor.to(torch.float64).square().sum()) for tensor in tensors.values()))


def weighted_mean(tensors: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Tensors:
    """Σ weight * tensor / Σ weight for each name, in the order given, in float64."""
    return {name: weighted_mean_of(name, tensors, weights) for name in tensors[0]}


def weighted_mean_of(name: str, tensors: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Tensor:
    """The same for one name: one tensor at a time is looked at, which may lie on the disk until then."""
    total = float(sum(weights))
    return weighted_sum_of(name, tensors, [weight / total for weight in weights])


def weighted_sum_of(name: str, tensors: Sequence[Mapping[str, Tensor]], factors: Sequence[float]) -> Tensor:
    """Σ factor * tensor for one name, in the order given, in float64."""
    total: Tensor | None = None
    for group, factor in zip(tensors, factors, strict=True):
        tensor = group[name]
        if total is None:
            total = torch.zeros_like(tensor, dtype=torch.float64, memory_format=torch.contiguous_format)
        for into, part in in_blocks(total, tensor):
            into.add_(part.to(torch.float64), alpha=factor)
    assert total is not None
    return total


def class_weighted_mean(tables: Sequence[Tensor], counts: Sequence[Tensor]) -> Tensor:
    """Row c averaged by the clients' samples of class c, in float64; zeros where nobody has any."""
    total = torch.zeros_like(tables[0], dtype=torch.float64)
    mass = torch.zeros_like(counts[0], dtype=torch.float64)
    for table, count in zip(tables, counts, strict=True):
        total += by_row(count.to(torch.float64), table) * table.to(torch.float64)
        mass += count
    return total / by_row(mass.clamp(min=1), total)


def by_row(numbers: Tensor, table: Tensor) -> Tensor:
    """One number for each row of a table, in a shape that multiplies with it."""
    return numbers.reshape(-1, *[1] * (table.dim() - 1))


def means_of(uploads: Sequence[Upload], change: Weight, shared: Callable[[str], Weight | None]) -> Means:
    """The means of these uploads, weighted as said; without what is shared, if there is no weight for it."""
    changes = [upload.change for upload in uploads]
    extras = [upload.shared for upload in uploads]
    weights = {name: weight for name in extras[0] if (weight := shared(name))}
    return Means(
        {name: _mean_of(name, changes, uploads, change) for name in changes[0]},
        {name: _mean_of(name, extras, uploads, weight) for name, weight in weights.items()},
        torch.stack([upload.counts for upload in uploads]).sum(0),
        len(uploads),
    )


def _mean_of(name: str, tensors: Sequence[Mapping[str, Tensor]], uploads: Sequence[Upload], weight: Weight) -> Tensor:
    if weight == "classes":
        return class_weighted_mean([group[name] for group in tensors], [upload.counts for upload in uploads])
    return weighted_mean_of(name, tensors, [upload.samples if weight == "samples" else 1.0 for upload in uploads])


def moved(weights: Tensors, change: Tensors, scale: float = 1.0) -> Tensors:
    """weights + scale * change, cast once; what has no change stays as it is; counters are rounded."""
    return weights | {name: _moved(weights[name], delta, scale) for name, delta in change.items()}


def _moved(weight: Tensor, delta: Tensor, scale: float) -> Tensor:
    result = torch.empty_like(weight, memory_format=torch.contiguous_format)
    for into, before, part in in_blocks(result, weight, delta):
        exact = before + scale * part  # in float64, as the change is
        into.copy_(exact if weight.is_floating_point() else exact.round())
    return result


def in_blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same elements of tensors of one shape, some at a time: what is computed on the way then takes no more room.

    The first must be contiguous, if it is to be written to.
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    return zip(*(torch.split(vector, BLOCK) for vector in flat), strict=True)
