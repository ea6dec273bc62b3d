"""What passes between the run and its workers? Bytes: a broadcast, jobs that build on it, and a reply to each.

Messages are safetensors with a JSON note, not pickles. What carries them differs: pipes, or Ray.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Sent
from ..base.errors import UserError
from ..base.tensors import Tensors, pack, unpack
from ..base.words import failure, traceback_of
from ..models.contract import load_weights
from ..training.client_work import Work
from ..training.evaluate import Score, ScoredPart, chunks, score_chunk, total
from ..training.personal import Recall, tuned_recall
from ..training.resources import keep_memory
from .engine import Outcome, StateOf

TRIES = 3  # how often a job is given out before the client counts as failed
CHUNKS_A_JOB = 1  # more would leave workers idle at the end
DIED = f"its worker process died {TRIES} times"

Unpacked = tuple[dict[str, Tensors], dict[str, Any]]


@dataclass
class Job:
    """What a worker is asked to do, made into bytes when it is given out, and how often that was tried."""

    message: Callable[[], bytes]
    client: int = -1
    tries: int = 0


class Runner:
    """The worker's side: knows the work and the last broadcast, does one job after the other."""

    def __init__(self, work: Work) -> None:
        keep_memory()
        self.work = work
        self.net = work.net()
        self.sent = Sent({})

    def receive(self, broadcast: bytes) -> None:
        groups, note = unpack(broadcast)
        self.sent = Sent(groups["weights"], groups.get("extra", {}), note.get("unshared", ()))

    def do(self, message: bytes) -> bytes:
        try:
            groups, note = unpack(message)
            match note["do"]:
                case "score":
                    return self._score(note)
                case "tune":
                    return self._tune(note)
                case _:
                    return self._train(groups, note)
        except Exception as error:  # one failed client must not stop the others
            return failed(failure(error), traceback_of(error))

    def _score(self, note: Mapping[str, Any]) -> bytes:
        load_weights(self.net, self.sent.weights)
        scores = [(number, score_chunk(self.net, self.work.data, number, note["part"])) for number in note["chunks"]]
        return pack({}, {"scores": [(number, s.correct, s.total, s.loss) for number, s in scores]})

    def _tune(self, note: Mapping[str, Any]) -> bytes:
        client, round, epochs = note["client"], note["round"], note["epochs"]
        recall = tuned_recall(self.work, self.net, self.sent.weights, client, round, epochs)
        return pack({}, {"recall": list(recall)})

    def _train(self, groups: Mapping[str, Tensors], note: Mapping[str, Any]) -> bytes:
        state = None if note["new"] else groups.get("state", {})
        upload, after = self.work.train(self.net, self.sent, note["client"], note["round"], state)
        counts = {"counts": upload.counts}
        return pack({"change": upload.change, "shared": upload.shared, "counts": counts, "state": after})


class RemoteEngine(ABC):
    """The run's side: an engine whose clients are trained elsewhere."""

    def __init__(self, work: Work) -> None:
        keep_memory()  # aggregating large models needs it as much as training does
        self.work = work

    @abstractmethod
    def announce(self, broadcast: bytes) -> None:
        """What all jobs from now on start from; each worker gets it once."""

    @abstractmethod
    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Unpacked]]:
        """Do all jobs; each comes back with its reply, in any order."""

    @abstractmethod
    def close(self) -> None: ...

    def train(self, round: int, sent: Sent, clients: Sequence[int], state_of: StateOf) -> Iterable[Outcome]:
        self.announce(pack({"weights": sent.weights, "extra": sent.extra}, {"unshared": list(sent.unshared)}))
        jobs = (Job(_train_message(client, round, state_of), client) for client in clients)
        for job, (groups, note) in self.run(jobs):
            if reason := note.get("failure"):
                yield Outcome(job.client, failure=str(reason), traceback=str(note.get("traceback", "")))
                continue
            upload = Upload(job.client, groups.get("change", {}), groups["counts"]["counts"], groups.get("shared", {}))
            yield Outcome(job.client, upload, groups.get("state", {}))

    def score(self, weights: Tensors, part: ScoredPart = "test") -> Score:
        self.announce(pack({"weights": weights}))
        count = chunks(self.work.data, part)
        jobs = (
            Job(_score_message(range(first, min(first + CHUNKS_A_JOB, count)), part))
            for first in range(0, count, CHUNKS_A_JOB)
        )
        scores: dict[int, Score] = {}
        for _, (_, note) in self.run(jobs):
            if reason := note.get("failure"):
                raise UserError(f"The model cannot be scored ({reason}).")
            scores |= {number: Score(tuple(c), tuple(t), loss) for number, c, t, loss in note["scores"]}
        return total([scores[number] for number in range(count)])

    def tune(self, weights: Tensors, round: int, clients: Sequence[int], epochs: int) -> Iterable[tuple[int, Recall]]:
        self.announce(pack({"weights": weights}))
        jobs = (Job(_tune_message(client, round, epochs), client) for client in clients)
        for job, (_, note) in self.run(jobs):
            if "failure" not in note:
                yield job.client, note["recall"]


def _train_message(client: int, round: int, state_of: StateOf) -> Callable[[], bytes]:
    def message() -> bytes:
        state = state_of(client)
        return pack({"state": state or {}}, {"do": "train", "client": client, "round": round, "new": state is None})

    return message


def _tune_message(client: int, round: int, epochs: int) -> Callable[[], bytes]:
    return lambda: pack({}, {"do": "tune", "client": client, "round": round, "epochs": epochs})


def _score_message(numbers: range, part: ScoredPart) -> Callable[[], bytes]:
    return lambda: pack({}, {"do": "score", "chunks": list(numbers), "part": part})


def failed(reason: str, traceback: str = "") -> bytes:
    """The reply of a job that could not be done."""
    return pack({}, {"failure": reason, "traceback": traceback})
