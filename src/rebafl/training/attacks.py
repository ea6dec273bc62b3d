"""What if some clients lie? In a simulation some can be made to, so that it is known what a defence is worth.

A client that lies trains as all others do, and changes its upload on the way out. Its class counts stay as they are: a
federation knows them, or holds a client to those it first named.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Client
from ..base.config import parameters
from ..base.kinds import Kinds, no_subclass
from ..base.rng import generator
from ..base.tensors import Tensors
from .loop import Outgoing, unchanged


@parameters
class Attack(ABC):
    """Who lies, and how."""

    name: ClassVar[str]

    @abstractmethod
    def lies(self, clients: int, seed: int) -> Outgoing:
        """What happens to an upload on its way out, in a run of so many clients."""


@parameters
class NoAttack(Attack):
    """Everybody is honest."""

    name = "none"

    def lies(self, clients: int, seed: int) -> Outgoing:
        return unchanged


@parameters
class SignFlip(Attack):
    """A share of the clients, drawn once, send the opposite of what they should, and more of it."""

    name = "sign-flip"
    share: Annotated[float, Field(ge=0, le=1, description="share of the clients that lie")] = 0.2
    scale: Annotated[float, Field(ge=0, description="how many times the opposite is sent")] = 5.0
    shared: Annotated[bool, Field(description="lie about what is shared besides the weights, too")] = True

    def lies(self, clients: int, seed: int) -> Outgoing:
        return Liars(drawn(self.share, clients, seed), self.flipped)

    def flipped(self, upload: Upload) -> Upload:
        change = _times(-self.scale, upload.change)
        return replace(
            upload, change=change, shared=_times(-self.scale, upload.shared) if self.shared else upload.shared
        )


@dataclass(frozen=True)
class Liars:
    """Some clients say something else than they should."""

    who: frozenset[int]
    instead: Callable[[Upload], Upload]

    def __call__(self, upload: Upload, client: Client) -> Upload:
        return self.instead(upload) if client.id in self.who else upload


def drawn(share: float, clients: int, seed: int) -> frozenset[int]:
    """This share of so many clients, by the seed."""
    count = round(share * clients)
    return frozenset(generator(seed, "attack").choice(clients, count, replace=False).tolist())


def _times(factor: float, tensors: Mapping[str, Tensor]) -> Tensors:
    """Whole numbers, such as counts of batches, stay as they are."""
    return {name: factor * tensor if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


KINDS: Kinds[type[Attack]] = Kinds("attack", {kind.name: kind for kind in (NoAttack, SignFlip)}, no_subclass(Attack))
