"""Train all clients here, one after the other: the plainest engine, and the one to debug with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..algorithm import Sent
from ..evaluate import Score, chunks, score_chunk, total
from ..local import keep_memory
from ..models import load_weights
from ..tensors import Tensors
from .work import Outcome, StateOf, Work, failure_text


class InProcess:
    def __init__(self, work: Work) -> None:
        keep_memory()
        self.work = work
        self.net = work.make_net()

    def train(self, round: int, sent: Sent, clients: Sequence[int], state_of: StateOf) -> Iterable[Outcome]:
        for client in clients:
            state = state_of(client)
            try:
                upload, after = self.work.train(self.net, sent, client, round, state)
            except Exception as error:  # one failed client must not stop the others
                yield Outcome(client, failure=failure_text(error))
            else:
                yield Outcome(client, upload, after)

    def score(self, weights: Tensors) -> Score:
        load_weights(self.net, weights)
        data = self.work.data
        return total([score_chunk(self.net, data, number) for number in range(chunks(data))])

    def close(self) -> None:
        """There is nothing to close."""
