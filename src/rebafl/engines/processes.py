"""Train clients in worker processes, one compute thread each.

Workers are forked, so they share the data set with this process instead of copying it, and know models
and algorithms that exist only in a notebook. A worker that dies is replaced and its job done again; since
a client's round is a pure function, that changes nothing. Messages are safetensors bytes, not pickles.
"""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from ..aggregate import Upload
from ..algorithm import Sent
from ..errors import UserError
from ..evaluate import Score, chunks, score_chunk, total
from ..models import Classifier, load_weights
from ..tensors import Tensors, pack, unpack
from .work import Outcome, Work, failure_text

TRIES = 3  # how often a job is given out before the client counts as failed
CHUNKS_A_JOB = 4


@dataclass
class Job:
    """What a worker is asked to do: bytes to send, and how often that was tried."""

    message: bytes
    client: int = -1
    tries: int = 0


class Worker:
    """One process and the pipe to it; `job` is what it is busy with, `version` which broadcast it knows."""

    def __init__(self, work: Work, others: Sequence[Worker] = ()) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        # The child must close our ends of all pipes, or it would never notice that we are gone.
        ours = [self.pipe, *(other.pipe for other in others)]
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, ours, work), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of forking with threads about; the child computes in its one thread and takes no locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.version = -1

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Processes:
    def __init__(self, work: Work, workers: int) -> None:
        self.work = work
        self._version = 0
        self._broadcast = b""
        self._workers: list[Worker] = []
        for _ in range(workers):
            self._workers.append(Worker(work, self._workers))

    def train(self, round: int, sent: Sent, states: Mapping[int, Tensors | None]) -> Iterable[Outcome]:
        self._announce({"weights": sent.weights, "extra": sent.extra})
        jobs = [
            Job(
                pack(
                    {"state": state or {}},
                    {"do": "train", "client": client, "round": round, "new": state is None},
                ),
                client,
            )
            for client, state in states.items()
        ]
        for job, reply in self._run(jobs):
            groups, note = reply
            if failure := note.get("failure"):
                yield Outcome(job.client, failure=str(failure))
                continue
            upload = Upload(job.client, groups.get("change", {}), groups["counts"]["counts"], groups.get("shared", {}))
            yield Outcome(job.client, upload, groups.get("state", {}))

    def score(self, weights: Tensors) -> Score:
        self._announce({"weights": weights})
        count = chunks(self.work.data)
        jobs = [
            Job(pack({}, {"do": "score", "chunks": list(range(first, min(first + CHUNKS_A_JOB, count)))}))
            for first in range(0, count, CHUNKS_A_JOB)
        ]
        scores: dict[int, Score] = {}
        for _, (_, note) in self._run(jobs):
            if failure := note.get("failure"):
                raise UserError(f"The model cannot be scored ({failure}).")
            scores |= {number: Score(tuple(c), tuple(t), loss) for number, c, t, loss in note["scores"]}
        return total([scores[number] for number in range(count)])

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _announce(self, groups: Mapping[str, Tensors]) -> None:
        """What all jobs from now on start from; each worker gets it once, with its first job."""
        self._version += 1
        self._broadcast = pack(groups, {"do": "receive"})

    def _run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, tuple[dict[str, Tensors], dict[str, Any]]]]:
        """Hand out the jobs to whoever is free; yield each with its reply as it comes."""
        waiting, open_jobs = deque(jobs), len(jobs)
        while open_jobs:
            for worker in self._workers:
                if worker.job is None and waiting:
                    self._give(worker, waiting.popleft())
            busy = [(worker, worker.job) for worker in self._workers if worker.job is not None]
            ready = wait([worker.pipe for worker, _ in busy])
            for worker, job in busy:
                if worker.pipe not in ready:
                    continue
                worker.job = None
                try:
                    reply = unpack(worker.pipe.recv_bytes())
                except (EOFError, OSError):
                    self._replace(worker)
                    if job.tries < TRIES:
                        waiting.append(job)
                        continue
                    reply = ({}, {"failure": f"its worker process died {TRIES} times"})
                open_jobs -= 1
                yield job, reply

    def _give(self, worker: Worker, job: Job) -> None:
        job.tries += 1
        worker.job = job
        try:
            if worker.version != self._version:
                worker.pipe.send_bytes(self._broadcast)
                worker.version = self._version
            worker.pipe.send_bytes(job.message)
        except OSError:
            pass  # it died: its pipe is at its end, which is noticed where replies are awaited

    def _replace(self, worker: Worker) -> None:
        worker.stop()
        self._workers.remove(worker)
        self._workers.append(Worker(self.work, self._workers))


def _serve(pipe: Connection, inherited: Sequence[Connection], work: Work) -> None:
    """A worker's life: receive, do, reply, until the process that started it is gone."""
    for each in inherited:
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    torch.set_num_threads(1)
    net = work.make_net()
    sent = Sent({})
    while True:
        try:
            groups, note = unpack(pipe.recv_bytes())
            if note["do"] == "receive":
                sent = Sent(groups["weights"], groups.get("extra", {}))
                continue
            try:
                reply = _do(net, work, sent, groups, note)
            except Exception as error:  # one failed client must not stop the others
                reply = pack({}, {"failure": failure_text(error)})
            pipe.send_bytes(reply)
        except (EOFError, OSError):
            return


def _do(net: Classifier, work: Work, sent: Sent, groups: dict[str, Tensors], note: dict[str, Any]) -> bytes:
    if note["do"] == "score":
        load_weights(net, sent.weights)
        scores = [(number, score_chunk(net, work.data, number)) for number in note["chunks"]]
        return pack({}, {"scores": [(number, s.correct, s.total, s.loss) for number, s in scores]})
    state = None if note["new"] else groups.get("state", {})
    upload, after = work.train(net, sent, note["client"], note["round"], state)
    return pack(
        {
            "change": upload.change,
            "shared": upload.shared,
            "counts": {"counts": upload.counts},
            "state": after,
        }
    )
