"""How do numbers become integers that can be masked? In fixed point, modulo 2^64, within bounds that rule out overflow.

Sums of integers modulo 2^64 do not depend on their order: masked and plain sums of the same vectors have equal bits.
A value v of a part with `bits` fractional bits becomes round(v * 2^bits), half to even. Both |v| <= bound and
bound * 2^bits * clients < 2^63 are checked, so the sum is known exactly and not only modulo 2^64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .abort import Abort

WORD = np.dtype("<u8")  # what is masked, summed and sent, on every machine
MOST_NUMBERS = 2**27  # in a vector: 1 GiB

Vector = NDArray[np.uint64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """One named array of the vector: its shape, fractional bits, and the largest absolute value that it may hold."""

    name: str
    shape: tuple[int, ...]
    bits: int
    bound: float

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def largest(self) -> int:
        """The largest integer that one client's value can become."""
        return math.ceil(Fraction(self.bound) * (1 << self.bits))

    def encode(self, values: NDArray[Any]) -> Vector:
        if values.shape != self.shape:
            raise Abort(f"{self.name} has shape {values.shape}, not {self.shape}")
        if values.dtype.kind not in "iuf" or values.dtype.itemsize > 8:
            raise Abort(f"{self.name} holds {values.dtype}, which has no fixed-point form here")
        exact = values.astype(np.float64).reshape(-1)  # a copy: it is scaled in place
        if not np.abs(exact).max(initial=0.0) <= self.bound:  # NaN is not, either
            raise Abort(f"{self.name} holds NaN, or a value beyond its bound {self.bound:.6g}")
        np.rint(np.multiply(exact, 2.0**self.bits, out=exact), out=exact)
        return exact.astype(np.int64).astype(WORD)

    def decode(self, words: Vector, clients: int) -> NDArray[np.float64]:
        integers = words.astype(np.int64)
        most = clients * self.largest
        if integers.size and not -most <= int(integers.min()) <= int(integers.max()) <= most:
            raise Abort(f"the sum of {self.name} is beyond what {clients} clients within the bound can have given")
        return (integers.astype(np.float64) * 2.0**-self.bits).reshape(self.shape)


@dataclass(frozen=True)
class Layout:
    """What a vector is made of, in order, and how many such vectors may be added."""

    parts: tuple[Part, ...]
    clients: int

    def __post_init__(self) -> None:
        if len({part.name for part in self.parts}) != len(self.parts) or not self.parts:
            raise Abort("a layout needs parts, each with a name of its own")
        if self.clients < 1:
            raise Abort("a layout is for one client or more")
        for part in self.parts:
            if not 0 <= part.bits <= 52 or not 0 < part.bound < math.inf or min(part.shape, default=0) < 0:
                raise Abort(f"{part.name}: 0 to 52 bits, a finite bound above 0 and a possible shape are needed")
            if self.clients * part.largest >= 2**63:
                raise Abort(
                    f"{part.name}: the sum of {self.clients} clients may overflow; "
                    f"bound * 2^bits * clients must be below 2^63, so take fewer bits or a smaller bound"
                )
        if not 0 < self.length <= MOST_NUMBERS:
            raise Abort(f"a vector of {self.length} numbers; 1 to {MOST_NUMBERS} are possible")

    @cached_property
    def length(self) -> int:
        return sum(part.numbers for part in self.parts)

    def encode(self, arrays: Arrays) -> Vector:
        """The vector of one client."""
        if arrays.keys() != {part.name for part in self.parts}:
            raise Abort(f"missing or unknown: {', '.join(sorted(arrays.keys() ^ {part.name for part in self.parts}))}")
        return np.concatenate([part.encode(np.asarray(arrays[part.name])) for part in self.parts])

    def decode(self, total: Vector, clients: int) -> dict[str, NDArray[np.float64]]:
        """The sum of the vectors of so many clients, as numbers; a sum that they cannot have is refused."""
        if total.shape != (self.length,) or total.dtype != WORD or not 0 < clients <= self.clients:
            raise Abort("this is no sum of vectors of this layout")
        ends = np.cumsum([part.numbers for part in self.parts])
        pieces = np.split(total, ends[:-1])
        return {part.name: part.decode(words, clients) for part, words in zip(self.parts, pieces, strict=True)}

    def description(self) -> bytes:
        """All of it, in one way only: whoever signs a digest of this agrees to scales and bounds."""
        return json.dumps(asdict(self), sort_keys=True).encode()


def plain_sum(vectors: Iterable[Vector]) -> Vector:
    """What the server would learn without masks; the order does not matter."""
    total: Vector | None = None
    for vector in vectors:
        total = vector.copy() if total is None else np.add(total, vector, out=total)
    if total is None:
        raise Abort("there is nothing to add")
    return total
