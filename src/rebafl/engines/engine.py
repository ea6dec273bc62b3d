"""What can any engine be asked to do, and from what? Train or tune one client, or score one chunk of the test set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Sent
from ..base.tensors import Tensors
from ..training.evaluate import Score, ScoredPart
from ..training.personal import Recall


@dataclass(frozen=True)
class Outcome:
    """What became of one client's round: an upload and a next state, or the reason why there is none.

    `traceback` is the whole story of a failure, where it is wanted.
    """

    client: int
    upload: Upload | None = None
    state: Tensors | None = None
    failure: str = ""
    traceback: str = ""


StateOf = Callable[[int], Tensors | None]
"""A client -> its state, read when the client is to train; None for one that has none yet."""


class Engine(Protocol):
    """Where clients are trained. Results come in any order; nothing may depend on it."""

    def train(self, round: int, sent: Sent, clients: Sequence[int], state_of: StateOf) -> Iterable[Outcome]: ...

    def score(self, weights: Tensors, part: ScoredPart = "test") -> Score: ...

    def tune(self, weights: Tensors, round: int, clients: Sequence[int], epochs: int) -> Iterable[tuple[int, Recall]]:
        """How well each client's own classes are known after it has fine-tuned the weights; without those that fail."""
        ...

    def close(self) -> None: ...
