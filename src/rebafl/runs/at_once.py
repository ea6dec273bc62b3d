"""How do several runs go at once on one machine? Each in a process of its own, with one compute thread.

A process that dies fails the run it was in, and no other. All of them end with the one that started them, however that
ends: what they had finished is in their records.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

T = TypeVar("T")
Task = Callable[[T], str]
"""What is done with each thing; why it could not be, or ''."""

DIED = "its process died"


class Hand(Generic[T]):
    """One process, and the number of the thing it is busy with."""

    def __init__(self, task: Task[T], things: Sequence[T], others: Sequence[Hand[T]]) -> None:
        context = multiprocessing.get_context("fork")  # as a run's workers: own code of a notebook is known there
        self.connection, theirs = context.Pipe()
        self.alive, until = context.Pipe()
        # the child must close our ends of all connections, or it would never notice that we are gone
        ours = [end for hand in (self, *others) for end in (hand.connection, hand.alive)]
        self.process = context.Process(target=_serve, args=(task, things, theirs, until, ours), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads about
            self.process.start()
        theirs.close()
        until.close()
        self.number = -1

    def give(self, number: int) -> None:
        self.number = number
        self.connection.send(number)

    def answer(self) -> str:
        try:
            return str(self.connection.recv())
        except (EOFError, OSError):
            return DIED

    def stop(self) -> None:
        """Its round under way is lost, and nothing else."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.alive.close()


def _serve(task: Task[T], things: Sequence[T], work: Connection, until: Connection, ours: Sequence[Connection]) -> None:
    """A process's life: one thing after the other, until the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    for end in ours:
        end.close()
    threading.Thread(target=_end_with, args=(until,), daemon=True).start()
    while True:
        try:
            work.send(task(things[work.recv()]))
        except (EOFError, OSError):
            return


def _end_with(until: Connection) -> None:
    until.poll(None)  # nothing is ever sent: it returns when the other end is closed
    os._exit(1)


@contextmanager
def _hands(task: Task[T], things: Sequence[T], count: int) -> Iterator[list[Hand[T]]]:
    hands: list[Hand[T]] = []
    try:
        for _ in range(count):
            hands.append(Hand(task, things, hands))
        yield hands
    finally:
        for hand in hands:
            hand.stop()


def each_at_once(
    task: Task[T], things: Sequence[T], processes: int, look: Callable[[], None] = lambda: None
) -> Iterator[tuple[T, str]]:
    """Do the task with all things, so many at a time; each comes back when it is done, in any order.

    `look` is called every second. All processes are forked before its first call: whoever looks may have threads.
    """
    with _hands(task, things, min(processes, len(things))) as hands:
        left = iter(range(len(things)))
        busy = list(hands)
        for hand in busy:
            hand.give(next(left))
        while busy:
            look()
            ready = wait([hand.connection for hand in busy], timeout=1.0)
            for hand in [hand for hand in busy if hand.connection in ready]:
                problem = hand.answer()
                yield things[hand.number], problem
                number = None if problem == DIED else next(left, None)
                if number is None:
                    busy.remove(hand)
                else:
                    hand.give(number)
        for number in left:  # all processes died
            yield things[number], DIED
