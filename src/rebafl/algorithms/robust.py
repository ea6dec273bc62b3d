"""How are uploads combined so that a few that lie do little harm? By one of the rules that `robust=` names.

A rule combines vectors. It is applied to the changes of all weights as one vector for each client, to each tensor that
is shared on its own, and, where a tensor has a row for each class, to each row among those who hold the class. What a
method makes of the result is the same as without a rule: a rule takes the place of the mean.

One or two holders of a class cannot be compared with each other: none of them is the odd one out. Their rows are
shortened to `FEW_LENGTH` times the median length of all rows of the round, and averaged.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.kinds import Kinds, address_of, explained, no_subclass
from ..base.tensors import Tensors
from .aggregate import Means, Upload, Weight, euclidean_norm, means_of, weighted_mean, weighted_sum_of
from .interface import Algorithm

ROOM = 2**21  # numbers in float64 that are compared at a time
FEWEST = 3  # holders of a class among whom one that lies can be told from the others
FEW_LENGTH = 2.0  # lengths of the median row that the row of a class with fewer holders may have
ROW = "row"

Group = Mapping[str, Tensor]
"""One client's vector, as named tensors."""

Share = Annotated[float, Field(ge=0, lt=0.5, description="share of the clients that may lie")]


@parameters
class Defence(ABC):
    """A rule that takes the place of the mean over uploads."""

    name: ClassVar[str]

    @abstractmethod
    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        """What these clients' vectors, in client-id order, amount to: by name, in float64."""

    def means(self, uploads: Sequence[Upload], change: Weight, shared: Callable[[str], Weight | None]) -> Means:
        """What all uploads of a round amount to by this rule; `means_of` says what `change` and `shared` are."""
        counts = torch.stack([upload.counts for upload in uploads])
        changes, extras = [upload.change for upload in uploads], [upload.shared for upload in uploads]

        def mean(groups: Sequence[Group], weight: Weight) -> Tensors:
            if weight == "classes":
                return {name: self._by_class([group[name] for group in groups], counts) for name in groups[0]}
            return self.combined(groups, [float(u.samples) if weight == "samples" else 1.0 for u in uploads])

        averaged: Tensors = {}
        for name in extras[0]:
            if weight := shared(name):
                averaged |= mean([_Some(extra, (name,)) for extra in extras], weight)
        return Means(mean(changes, change), averaged, counts.sum(0), len(uploads))

    def _by_class(self, tables: Sequence[Tensor], counts: Tensor) -> Tensor:
        """A table whose row c is combined from the rows of those who hold class c; zeros where nobody does."""
        held = counts > 0
        few = held.sum(0) < FEWEST
        longest = FEW_LENGTH * _median_length(tables, held)
        result = torch.zeros_like(tables[0], dtype=torch.float64, memory_format=torch.contiguous_format)
        for label in torch.nonzero(held.any(0)).flatten().tolist():
            holders = torch.nonzero(held[:, label]).flatten().tolist()
            rows = [{ROW: tables[holder][label]} for holder in holders]
            weights = [float(counts[holder, label]) for holder in holders]
            combined = shortened_mean(rows, weights, longest) if few[label] else self.combined(rows, weights)
            result[label] = combined[ROW]
        return result


@parameters
class NoDefence(Defence):
    """The mean, as the method weighs it: one client can move it as far as it likes."""

    name = "none"

    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        return weighted_mean(groups, weights)


@parameters
class Clip(Defence):
    """Vectors that are longer than the median one are shortened to its length; then the mean."""

    name = "clip"

    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        """Whole numbers, such as counts of batches, are shortened by themselves: they would outweigh the weights."""
        names = {name: tensor.is_floating_point() for name, tensor in groups[0].items()}
        parts = [[name for name, is_weight in names.items() if is_weight]]
        parts += [[name] for name, is_weight in names.items() if not is_weight]
        result: Tensors = {}
        for part in parts:
            result |= shortened_mean([_Some(group, part) for group in groups], weights)
        return {name: result[name] for name in names}


@parameters
class Trimmed(Defence):
    """At each coordinate the largest and the smallest values are left out, then the mean, by samples."""

    name = "trimmed"
    share: Share = 0.2

    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        cut = min(at_most(self.share, len(groups)), (len(groups) - 1) // 2)
        if cut == 0:
            return weighted_mean(groups, weights)
        mass = torch.tensor(weights, dtype=torch.float64)

        def rule(values: Tensor) -> Tensor:
            ordered, order = values.sort(dim=0, stable=True)
            rest = slice(cut, len(groups) - cut)
            total, weight = torch.zeros_like(values[0]), torch.zeros_like(values[0])
            for row, of_row in zip(
                ordered[rest], mass[order[rest]], strict=True
            ):  # one order of adding on all machines
                total += row * of_row
                weight += of_row
            return total / weight

        return at_each_place(groups, rule)

    def means(self, uploads: Sequence[Upload], change: Weight, shared: Callable[[str], Weight | None]) -> Means:
        return super().means(uploads, change, shared) if self.share else means_of(uploads, change, shared)


@parameters
class Median(Defence):
    """At each coordinate the median, of two in the middle their mean. All clients count alike."""

    name = "median"

    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        """A weighted median would hand the model to whoever claims most samples."""
        low, high = (len(groups) - 1) // 2, len(groups) // 2

        def rule(values: Tensor) -> Tensor:
            ordered = values.sort(dim=0).values
            return ordered[low] if low == high else (ordered[low] + ordered[high]) / 2

        return at_each_place(groups, rule)


@parameters
class Krum(Defence):
    """Those vectors that are nearest to many others are averaged by samples, the rest is left out (multi-Krum)."""

    name = "krum"
    share: Share = 0.2
    keep: Annotated[int, Field(ge=0, description="uploads that are averaged; 0: all but those that may lie")] = 0

    def combined(self, groups: Sequence[Group], weights: Sequence[float]) -> Tensors:
        chosen = self.chosen(groups)
        return weighted_mean([groups[each] for each in chosen], [weights[each] for each in chosen])

    def chosen(self, groups: Sequence[Group]) -> list[int]:
        """Positions of the vectors to be averaged: with fewer than 2 f + 3 of them, f that lie cannot be found."""
        count = len(groups)
        liars = min(at_most(self.share, count), max(0, (count - 3) // 2))
        keep = min(self.keep or count - liars, count - liars)
        if count < FEWEST or keep == count:
            return list(range(count))
        apart = squared_distances(groups)
        apart.fill_diagonal_(math.inf)  # nobody is a neighbour of itself
        nearest = apart.sort(dim=1).values[:, : count - liars - 2]
        scores = nearest.sum(1)
        best: list[int] = scores.argsort(stable=True)[:keep].tolist()
        return sorted(best)


class _Some(Mapping[str, Tensor]):
    """Some of a vector's tensors, read when they are asked for: they may lie on the disk until then."""

    def __init__(self, group: Group, names: Sequence[str]) -> None:
        self.group, self.names = group, names

    def __getitem__(self, name: str) -> Tensor:
        return self.group[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def at_most(share: float, count: int) -> int:
    """How many of so many may lie if this share of all clients does."""
    return math.ceil(share * count - 1e-9)  # 0.07 * 100 is a little more than 7


def shortened_mean(groups: Sequence[Group], weights: Sequence[float], longest: float | None = None) -> Tensors:
    """The mean of vectors that are shortened to a length, or to the median one; of two in the middle the lower."""
    lengths = [euclidean_norm(group) for group in groups]
    bound = median_low(lengths) if longest is None else longest
    total = float(sum(weights))
    factors = [
        weight / total * (bound / length if length > bound else 1.0)
        for weight, length in zip(weights, lengths, strict=True)
    ]
    return {name: weighted_sum_of(name, groups, factors) for name in groups[0]}


def at_each_place(groups: Sequence[Group], rule: Callable[[Tensor], Tensor]) -> Tensors:
    """`rule` for the values of all vectors at each coordinate, (vectors, coordinates) -> (coordinates)."""
    result = {}
    for name in groups[0]:
        like = groups[0][name]
        found = torch.empty(like.numel(), dtype=torch.float64)
        for begin, values in _columns(name, groups):
            found[begin : begin + values.shape[1]] = rule(values)
        result[name] = found.reshape(like.shape)
    return result


def squared_distances(groups: Sequence[Group]) -> Tensor:
    """Between each two vectors, over the coordinates that are no whole numbers."""
    apart = torch.zeros(len(groups), len(groups), dtype=torch.float64)
    for name, tensor in groups[0].items():
        for _, values in _columns(name, groups) if tensor.is_floating_point() else ():
            for each in range(1, len(groups)):
                apart[each, :each] += (values[:each] - values[each]).square().sum(1)
    return apart + apart.T


def _columns(name: str, groups: Sequence[Group]) -> Iterator[tuple[int, Tensor]]:
    """One tensor of all vectors as a row each, some columns at a time, in float64; each with where it begins."""
    step = max(1, ROOM // len(groups))
    for begin in range(0, groups[0][name].numel(), step):
        rows = [group[name].reshape(-1)[begin : begin + step].to(torch.float64) for group in groups]
        yield begin, torch.stack(rows)


def _median_length(tables: Sequence[Tensor], held: Tensor) -> float:
    """The median length of all rows that are held; of two in the middle the lower."""
    squares = [table.to(torch.float64).square().flatten(1).sum(1) for table in tables]
    rows = torch.stack(squares)[held]
    return math.sqrt(float(rows.median())) if len(rows) else 0.0


def combined(defence: Defence, uploads: Sequence[Upload], algorithm: Algorithm) -> Means:
    """What uploads amount to for an algorithm; what a rule that is own code gives back is looked at."""
    if type(defence) in KINDS.values():
        return defence.means(uploads, algorithm.change_weight, algorithm.weight_of)
    with explained(f"robust: combined() of {address_of(type(defence))}"):
        means = defence.means(uploads, algorithm.change_weight, algorithm.weight_of)
        expected = {name: tensor.shape for name, tensor in uploads[0].change.items()}
        if {name: tensor.shape for name, tensor in means.change.items()} != expected:
            raise ValueError("it gave back other names or shapes than it was given")
        return means


KINDS: Kinds[type[Defence]] = Kinds(
    "defence",
    {kind.name: kind for kind in (NoDefence, Clip, Trimmed, Median, Krum)},
    no_subclass(Defence),
)
