"""Train clients in worker processes, one compute thread each.

Workers are forked, so they share the data set with this process instead of copying it, and know models
and algorithms that exist only in a notebook. A worker that dies is replaced and its job done again; since
a client's round is a pure function, that changes nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from ..tensors import unpack
from .jobs import DIED, TRIES, Job, Remote, Reply, Runner, failed
from .work import Work

BROADCAST, JOB = b"b", b"j"


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
            # Ctrl-C at a terminal reaches the child, too: it must not be heard before the child ignores it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.job: Job | None = None
        self.version = -1

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Processes(Remote):
    def __init__(self, work: Work, workers: int) -> None:
        super().__init__(work)
        self._version = 0
        self._broadcast = b""
        self._workers: list[Worker] = []
        for _ in range(workers):
            self._workers.append(Worker(work, self._workers))

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def announce(self, broadcast: bytes) -> None:
        """Sent to each worker with its first job."""
        self._version += 1
        self._broadcast = broadcast

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Reply]]:
        """Hand out the jobs to whoever is free."""
        waiting, again = iter(jobs), deque[Job]()
        while True:
            for worker in self._workers:
                if worker.job is None and (job := again.popleft() if again else next(waiting, None)):
                    self._give(worker, job)
            busy = [(worker, worker.job) for worker in self._workers if worker.job is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker, _ in busy])
            for worker, job in busy:
                if worker.pipe not in ready:
                    continue
                worker.job = None
                try:
                    reply = worker.pipe.recv_bytes()
                except (EOFError, OSError):
                    self._replace(worker)
                    if job.tries < TRIES:
                        again.append(job)
                        continue
                    reply = failed(DIED)
                yield job, unpack(reply)

    def _give(self, worker: Worker, job: Job) -> None:
        job.tries += 1
        worker.job = job
        try:
            if worker.version != self._version:
                worker.pipe.send_bytes(BROADCAST + self._broadcast)
                worker.version = self._version
            worker.pipe.send_bytes(JOB + job.message())
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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    torch.set_num_threads(1)
    runner = Runner(work)
    while True:
        try:
            message = pipe.recv_bytes()
            if message[:1] == BROADCAST:
                runner.receive(message[1:])
            else:
                pipe.send_bytes(runner.do(message[1:]))
        except (EOFError, OSError):
            return
