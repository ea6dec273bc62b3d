"""What of an upload is summed? Each tensor times its weight, and the class counts: means follow from the sums alone.

The counts travel inside the vector, so that no client's sample count is in clear. Whoever adds the vectors, masked or
plain, gets the same integers, and from them the same means, bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.tensors import Tensors
from .abort import Abort
from .fixed_point import Layout, Part, Vector

COUNTS = "counts"
MOST_BITS, LEAST_BITS = 32, 12

Weight = Literal["samples", "classes", "clients"]
"""By what a tensor's mean is weighted: a client's samples; its samples of class c, for row c; or all clients alike."""


@dataclass(frozen=True)
class Averages:
    """The tensors of an upload by shape and weight, and the bounds within which every client must stay.

    The scale is as fine as the bounds allow, with at most 32 fractional bits. With fewer than 12 it is refused.
    """

    shapes: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, Weight]
    classes: int
    clients: int
    most_samples: int
    most_value: float

    @cached_property
    def layout(self) -> Layout:
        if self.shapes.keys() != self.weights.keys() or COUNTS in self.shapes:
            raise Abort(f"each tensor needs a shape and a weight, and none may be called {COUNTS}")
        parts = [self._part(name, shape) for name, shape in sorted(self.shapes.items())]
        return Layout((*parts, Part(COUNTS, (self.classes,), 0, float(self.most_samples))), self.clients)

    def _part(self, name: str, shape: tuple[int, ...]) -> Part:
        if self.weights[name] == "classes" and shape[:1] != (self.classes,):
            raise Abort(f"{name} of shape {shape} has not one row for each of {self.classes} classes")
        bound = self.most_value * (1 if self.weights[name] == "clients" else self.most_samples)
        for bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            part = Part(name, shape, bits, bound)
            if self.clients * part.largest < 2**63:
                return part
        raise Abort(f"{name}: {self.clients} clients with values up to {bound:.4g} leave too few bits for fractions")

    def encoded(self, tensors: Mapping[str, Tensor], counts: Tensor) -> Vector:
        """One client's vector."""
        held = counts.numpy()
        if held.shape != (self.classes,) or held.min(initial=0) < 0 or not 0 < held.sum() <= self.most_samples:
            raise Abort(f"not class counts of {self.classes} classes with 1 to {self.most_samples} samples in all")
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if unlike := sorted(shapes.items() ^ self.shapes.items()):
            raise Abort(f"missing, unknown or of another shape: {unlike[0][0]}")
        weighted = {name: np.asarray(self._factor(name, held) * values) for name, values in _doubles(tensors).items()}
        return self.layout.encode({**weighted, COUNTS: held})

    def decoded(self, total: Vector, clients: int) -> tuple[Tensors, Tensor]:
        """The means (float64) and the class counts of so many clients together. Rows of classes nobody holds are 0."""
        sums = self.layout.decode(total, clients)
        counts = sums.pop(COUNTS)
        if counts.min(initial=0) < 0 or not clients <= counts.sum() <= clients * self.most_samples:
            raise Abort(f"{clients} clients cannot hold {counts.sum():.0f} samples together")
        means = {}
        for name, summed in sums.items():
            divisor = np.asarray(float(clients)) if self.weights[name] == "clients" else self._factor(name, counts)
            means[name] = torch.from_numpy(np.asarray(summed / np.maximum(divisor, 1.0)))
        return means, torch.from_numpy(counts).to(torch.int64)

    def _factor(self, name: str, counts: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """What a tensor is multiplied with: one number, or one for each row."""
        if self.weights[name] == "clients":
            return np.asarray(1.0)
        if self.weights[name] == "samples":
            return np.asarray(counts.sum(), dtype=np.float64)
        return counts.astype(np.float64).reshape(-1, *[1] * (len(self.shapes[name]) - 1))


def _doubles(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    return {name: tensor.detach().to("cpu", torch.float64).numpy() for name, tensor in tensors.items()}
