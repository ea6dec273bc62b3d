"""What does an attack that reconstructs pictures know, and what must it give? The contract that all of them fulfil.

Pictures are (n, channels, height, width) with numbers from 0 to 1; a mean of features is one row of (n, dimensions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Reconstruct = Callable[[Tensor], Tensor]
"""From means of features to pictures, one for each row."""
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Known:
    """What the attacker knows: the model that computed the features, and public pictures with their labels."""

    features: Callable[[Tensor], Tensor]
    """From pictures to rows of features, differentiable in the pictures; the model's weights do not change."""
    pictures: Tensor
    labels: Tensor
    seed: int


class Attack(Protocol):
    """One way to reconstruct: prepared for means of k pictures, then applied to as many means as there are."""

    @property
    def name(self) -> str: ...

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct: ...
