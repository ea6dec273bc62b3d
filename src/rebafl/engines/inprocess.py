"""Train all clients here, one after the other: the plainest engine, and the one to debug with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Sent
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..base.words import failure, traceback_of
from ..models.contract import load_weights
from ..training.client_work import Work
from ..training.evaluate import Score, ScoredPart, chunks, score_chunk, total
from ..training.personal import Recall, tuned_recall
from ..training.resources import keep_memory
from .engine import Outcome, StateOf


class InProcess:
    def __init__(self, work: Work) -> None:
        keep_memory()
        self.work = work
        self.net = work.net()

    def train(self, round: int, sent: Sent, clients: Sequence[int], state_of: StateOf) -> Iterable[Outcome]:
        for client in clients:
            state = state_of(client)
            try:
                upload, after = self.work.train(self.net, sent, client, round, state)
            except Exception as error:  # one failed client must not stop the others
                yield Outcome(client, failure=failure(error), traceback=traceback_of(error))
            else:
                yield Outcome(client, _apart(upload), after)

    def score(self, weights: Tensors, part: ScoredPart = "test") -> Score:
        load_weights(self.net, weights)
        data = self.work.data
        try:
            return total([score_chunk(self.net, data, number, part) for number in range(chunks(data, part))])
        except Exception as error:
            raise UserError(f"The model cannot be scored ({failure(error)}).") from error

    def tune(self, weights: Tensors, round: int, clients: Sequence[int], epochs: int) -> Iterable[tuple[int, Recall]]:
        for client in clients:
            with suppress(Exception):  # one failed client must not stop the others
                yield client, tuned_recall(self.work, self.net, weights, client, round, epochs)

    def close(self) -> None:
        """There is nothing to close."""


def _apart(upload: Upload) -> Upload:
    """A copy: an algorithm may hand out a tensor of the model itself, with which the next client trains."""
    change, shared = ({n: t.detach().clone() for n, t in part.items()} for part in (upload.change, upload.shared))
    return replace(upload, change=change, shared=shared)
