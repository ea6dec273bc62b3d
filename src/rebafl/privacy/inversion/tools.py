"""Which attacks are run, on how much? Fast ones on everything, slow ones on a part that keeps an audit to minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .contract import Attack
from .decoder import upcnn
from .likeness import check_installed
from .vae import feature_vae

DEEP, SHALLOW = "deep", "shallow"


@dataclass(frozen=True)
class Tool:
    """One attack, and what it is used on."""

    attack: Attack
    singles: int = 50
    """Single images of each client and class: the positive control."""
    most: int = 20
    """Means of each k, client and class."""
    ks: tuple[int, ...] = ()
    """Empty: all that are asked for."""
    shallow_ks: tuple[int, ...] = (1, 2, 10, 100)
    everywhere: bool = True
    """Also by a curious client, and in other rounds than the last."""
    all_classes: bool = False
    """It is given public pictures of all classes, not only of the one that is attacked."""

    def sizes(self, ks: Sequence[int], depth: str) -> list[int]:
        some = [k for k in ks if not self.ks or k in self.ks]
        return some if depth == DEEP else [k for k in some if k in self.shallow_ks]


def usual_tools() -> list[Tool]:
    """The paper's three, one of them in two forms, and descent over pixels."""
    check_installed()
    from .generator import Generator  # these import torchmetrics, which is an extra
    from .pixels import Pixels
    from .search import Search

    slow = [Tool(attack, 8, 8, (1, 10), (1,), False, True) for attack in (Search(), Generator(), Pixels())]
    return [Tool(upcnn()), Tool(feature_vae(), ks=(1, 2, 10, 100), shallow_ks=(), everywhere=False), *slow]
