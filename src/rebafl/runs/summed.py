"""What can be made of uploads of which only the sum is known? Means: each tensor is summed times its weight.

Class counts, the clients' weights and, where the server needs to know how many hold a class, a 0 or 1 per class travel
inside the same vector, so that nothing of one client is in clear. Vectors are in fixed point: whoever adds them, masked
or plain, in whatever order, gets the same integers, and from them the same means, bit by bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..algorithms.aggregate import Means, Upload, Weight
from ..algorithms.interface import Algorithm
from ..algorithms.prototypes import PROTOTYPES
from ..base.tensors import Tensors
from ..secagg.abort import Abort
from ..secagg.fixed_point import WORD, Layout, Part, Vector
from ..training.protections import Protections

CHANGE, SHARED = "change/", "shared/"  # an upload may use a name in both
COUNTS, SAMPLES, HOLDERS = "counts", "samples", "holders"
MOST_BITS, LEAST_BITS = 32, 12

Numbers = NDArray[np.int64] | NDArray[np.float64]


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
    fewest_samples: int = 1
    holders: bool = False

    @cached_property
    def layout(self) -> Layout:
        if self.shapes.keys() != self.weights.keys() or self.shapes.keys() & {COUNTS, SAMPLES, HOLDERS}:
            raise Abort(f"each tensor needs a shape and a weight, and none may be called {COUNTS} or the like")
        parts = [self._part(name, shape) for name, shape in sorted(self.shapes.items())]
        counts = Part(COUNTS, (self.classes,), 0, float(self.most_samples))
        held = [Part(HOLDERS, (self.classes,), 0, 1.0)] if self.holders else []
        return Layout((*parts, counts, Part(SAMPLES, (1,), 0, float(self.most_samples)), *held), self.clients)

    def _part(self, name: str, shape: tuple[int, ...]) -> Part:
        if self.weights[name] == "classes" and shape[:1] != (self.classes,):
            raise Abort(f"{name} of shape {shape} has not one row for each of {self.classes} classes")
        bound = self.most_value * (1 if self.weights[name] == "clients" else self.most_samples)
        for bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            part = Part(name, shape, bits, bound)
            if self.clients * part.largest < 2**63:
                return part
        raise Abort(f"{name}: {self.clients} clients with values up to {bound:.4g} leave too few bits for fractions")

    def encoded(self, upload: Upload) -> Vector:
        """One client's vector; `upload` has the weight that it counts for."""
        held, samples = upload.counts.numpy(), np.asarray([upload.samples])
        if held.shape != (self.classes,) or held.min(initial=0) < 0 or not self._possible(int(held.sum()), 1):
            raise Abort(
                f"not class counts of {self.classes} classes with {self.fewest_samples} to {self.most_samples} samples"
            )
        tensors = self._averaged(upload)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if unlike := sorted(shapes.items() ^ self.shapes.items()):
            raise Abort(f"missing, unknown or of another shape: {unlike[0][0]}")
        arrays: dict[str, Numbers] = {COUNTS: held, SAMPLES: samples}
        if self.holders:
            arrays[HOLDERS] = (held > 0).astype(np.int64)
        for name, tensor in tensors.items():
            values = tensor.detach().to("cpu", torch.float64).numpy()
            if not np.abs(values).max(initial=0.0) <= self.most_value:  # NaN is not, either
                raise Abort(f"{name} holds NaN, or a value beyond the bound {self.most_value:.6g}")
            arrays[name] = np.asarray(self._factor(name, held, samples) * values)
        return self.layout.encode(arrays)

    def decoded(self, total: Vector, clients: int) -> tuple[Means, Tensor]:
        """The means and how many clients hold each class (zeros if that was not asked), of so many clients together.

        A sum that these clients cannot have given is refused. Rows of classes that nobody holds are 0.
        """
        sums = self.layout.decode(total, clients)
        counts, samples = sums.pop(COUNTS), sums.pop(SAMPLES)
        holders = sums.pop(HOLDERS, np.zeros(self.classes))
        if counts.min(initial=0) < 0 or not self._possible(int(counts.sum()), clients):
            raise Abort(f"{clients} clients cannot hold {counts.sum():.0f} samples together")
        if not clients <= samples[0] <= clients * self.most_samples or holders.min(initial=0) < 0:
            raise Abort(f"{clients} clients cannot weigh {samples[0]:.0f}, or hold the classes that they say")
        change: Tensors = {}
        shared: Tensors = {}
        for name, summed in sums.items():
            divisor = float(clients) if self.weights[name] == "clients" else self._factor(name, counts, samples)
            mean = np.asarray(summed / np.maximum(divisor, 1.0))
            if not np.abs(mean).max(initial=0.0) <= self.most_value * (1 + 2.0**-LEAST_BITS):
                raise Abort(f"the mean of {name} is beyond the bound {self.most_value:.6g} that holds for each client")
            group, prefix = (change, CHANGE) if name.startswith(CHANGE) else (shared, SHARED)
            group[name.removeprefix(prefix)] = torch.from_numpy(mean)
        means = Means(change, shared, torch.from_numpy(counts).to(torch.int64), clients)
        return means, torch.from_numpy(holders).to(torch.int64)

    def _averaged(self, upload: Upload) -> Tensors:
        """Those tensors of an upload that are averaged, by their names in the vector."""
        shared = any(name.startswith(SHARED) for name in self.shapes)
        return named(upload.change, CHANGE) | (named(upload.shared, SHARED) if shared else {})

    def _possible(self, samples: int, clients: int) -> bool:
        return self.fewest_samples * clients <= samples <= self.most_samples * clients

    def _factor(self, name: str, counts: Numbers, samples: Numbers) -> NDArray[np.float64]:
        """What a tensor is multiplied with: one number, or one for each row."""
        if self.weights[name] == "clients":
            return np.asarray(1.0)
        if self.weights[name] == "samples":
            return np.asarray(samples[0], dtype=np.float64)
        return counts.astype(np.float64).reshape(-1, *[1] * (len(self.shapes[name]) - 1))


def named(tensors: Mapping[str, Tensor], prefix: str) -> Tensors:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def averages_of(algorithm: Algorithm, like: Upload, clients: int, most_samples: int, protect: Protections) -> Averages:
    """How uploads that look like this one are summed in a run of so many clients."""
    weights: dict[str, Weight] = dict.fromkeys(named(like.change, CHANGE), algorithm.change_weight)
    shapes = {name: tuple(tensor.shape) for name, tensor in named(like.change, CHANGE).items()}
    for name, tensor in like.shared.items():
        if weight := algorithm.weight_of(name):
            weights[SHARED + name], shapes[SHARED + name] = weight, tuple(tensor.shape)
    return Averages(
        shapes,
        weights,
        len(like.counts),
        clients,
        most_samples,
        protect.secagg_bound,
        protect.fewest_samples,
        holders=protect.min_holders > 0 and PROTOTYPES in like.shared,
    )


class Summed:
    """The sum of a round's uploads. Which client gave what is not kept."""

    def __init__(self, averages: Averages, protect: Protections) -> None:
        self.averages, self.protect = averages, protect
        self.clients: set[int] = set()
        self.total: Vector = np.zeros(averages.layout.length, dtype=WORD)

    @property
    def bytes(self) -> int:
        """What one client sends of it."""
        return self.total.nbytes

    def add(self, upload: Upload) -> None:
        """One more upload; raises `Abort` if it has no vector."""
        np.add(self.total, self.averages.encoded(upload), out=self.total)
        self.clients.add(upload.client)

    def put(self, total: Vector, clients: Collection[int]) -> None:
        """The sum of the uploads of these clients, which was made elsewhere."""
        self.total, self.clients = total, set(clients)

    def means(self, asked: int) -> tuple[Means, list[int]]:
        """The means, without the prototypes that too few clients share, and the classes that are left out so.

        Raises `Abort` if fewer clients stayed than must, of those that were asked, or if the sum cannot be right.
        """
        check_enough(len(self.clients), asked, self.protect)
        means, holders = self.averages.decoded(self.total, len(self.clients))
        return self.protect.concealed_means(means, holders) if self.averages.holders else (means, [])


def check_enough(stayed: int, asked: int, protect: Protections) -> None:
    """Raise `Abort` unless as many stayed as the protocol asks for, masked or not."""
    if asked < 2:
        raise Abort("the sum of a single client hides nothing; at least 2 must take part")
    if stayed < (threshold := protect.secagg_threshold(asked)):
        raise Abort(f"{stayed} of {asked} clients stayed to the end; at least {threshold} must")


def impossible(algorithm: Algorithm, kind: str, averages: Averages) -> str:
    """Why the uploads of this algorithm cannot be summed, or ''."""
    if algorithm.needs_each_upload():
        return (
            f"algorithm={kind} replaces aggregate(), which sees each upload, and with protect.secagg only their sum is "
            "known; give it next_server() instead, or use protect.secagg=false."
        )
    try:
        averages.layout.description()
    except Abort as reason:
        return f"protect.secagg=true cannot sum these uploads: {reason}; use a smaller protect.secagg_bound."
    return ""
