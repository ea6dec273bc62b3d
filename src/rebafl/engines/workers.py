"""Train clients in worker processes, one compute thread each.

Workers are forked, so they share the data set with this process instead of copying it, and know models
and algorithms that exist only in a notebook. A graphics card's driver does not survive a fork: for one, workers are
started afresh and make the work again from its settings. A worker that dies is replaced and its job done again; since
a client's round is a pure function, that changes nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import struct
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from ..base.tensors import unpack
from ..training.client_work import Work
from ..training.device import CPU
from ..training.resources import stay_with_one_thread
from .jobs import DIED, TRIES, Job, RemoteEngine, Runner, Unpacked, failed

BROADCAST, JOB, REPLY = b"b", b"j", b"r"
HEADER = struct.Struct("!cQ")  # a message's kind and length


class Channel:
    """One end of a connection to another process, for messages of any size.

    Unlike multiprocessing's own, it reserves the memory of a message once, when its length is known: hundreds of
    reservations for a large model would leave the heap in pieces, and more so with every client.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, kind: bytes, content: bytes) -> None:
        self.end.sendall(HEADER.pack(kind, len(content)))
        self.end.sendall(content)

    def receive(self) -> tuple[bytes, bytes]:
        """Waits for a message; raises `EOFError` or `OSError` if the other process is gone."""
        kind, length = HEADER.unpack(self._whole(HEADER.size))
        return kind, self._whole(length)

    def _whole(self, length: int) -> bytes:
        parts, left = [], length
        while left:
            part = self.end.recv(left, socket.MSG_WAITALL)
            if not part:
                raise EOFError
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)  # a signal may have cut it short

    def close(self) -> None:
        self.end.close()


class Worker:
    """One process and the channel to it; `job` is what it is busy with, `version` which broadcast it knows."""

    def __init__(self, work: Work, others: Sequence[Worker] = ()) -> None:
        again = work.again if work.device != CPU else None
        self.channel, theirs = map(Channel, socket.socketpair())
        # The child must close our ends of all channels, or it would never notice that we are gone.
        ours = [self.channel, *(other.channel for other in others)]
        self.process: BaseProcess
        if again:
            anew = multiprocessing.get_context("spawn")
            self.process = anew.Process(target=_serve_anew, args=(theirs, again), daemon=True)
        else:
            forked = multiprocessing.get_context("fork")
            self.process = forked.Process(target=_serve, args=(theirs, ours, work), daemon=True)
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
        self.channel.close()


class WorkerProcesses(RemoteEngine):
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

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Unpacked]]:
        """Hand out the jobs to whoever is free."""
        waiting, again = iter(jobs), deque[Job]()
        while True:
            for worker in self._workers:
                if worker.job is None and (job := again.popleft() if again else next(waiting, None)):
                    self._give(worker, job)
            busy = [(worker, worker.job) for worker in self._workers if worker.job is not None]
            if not busy:
                return
            ready = wait([worker.channel.end for worker, _ in busy])
            for worker, job in busy:
                if worker.channel.end not in ready:
                    continue
                worker.job = None
                try:
                    _, reply = worker.channel.receive()
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
        message = job.message()
        try:
            if worker.version != self._version:
                worker.channel.send(BROADCAST, self._broadcast)
                worker.version = self._version
            worker.channel.send(JOB, message)
        except OSError:
            pass  # it died: its channel is at its end, which is noticed where replies are awaited

    def _replace(self, worker: Worker) -> None:
        worker.stop()
        self._workers.remove(worker)
        self._workers.append(Worker(self.work, self._workers))


def _serve(channel: Channel, inherited: Sequence[Channel], work: Work) -> None:
    """A worker's life: receive, do, reply, until the process that started it is gone."""
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stay_with_one_thread()
    runner = Runner(work)
    while True:
        try:
            kind, content = channel.receive()
            if kind == BROADCAST:
                runner.receive(content)
            else:
                channel.send(REPLY, runner.do(content))
        except (EOFError, OSError):
            return


def _serve_anew(channel: Channel, again: Callable[[], Work]) -> None:
    """The same in a process that was not forked."""
    stay_with_one_thread()
    _serve(channel, (), again())
