"""Where else do rounds go, for people who look elsewhere already? Live and later by the same code.

A logger is a function of committed rounds and of a cursor, which the place itself keeps. So each round stands there
exactly once, whether it was written live, after a kill, or by `rebafl log`. No result depends on it, and a logger that
fails is left out with a sentence: it can be brought up to date later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import accumulate

from ...base.errors import UserError
from ...base.words import Say, one_line
from ..follow import Follower
from ..holdings import read_holdings
from ..record import CONFIG, Record
from ..settings import LOGGERS, flatten
from .mlflow import Mlflow
from .sink import About, Sink, need
from .tensorboard import TensorBoard
from .wandb import Wandb

PACKAGES = {"tensorboard": ("tensorboardX",), "mlflow": ("mlflow", "sqlalchemy", "alembic"), "wandb": ("wandb",)}
SINKS: dict[str, Callable[[About], Sink]] = {"tensorboard": TensorBoard, "mlflow": Mlflow, "wandb": Wandb}


def chosen(text: str) -> list[str]:
    """`tensorboard,wandb` as a list, without repetitions."""
    return [name for name in LOGGERS if name in text.split(",")]


def need_loggers(text: str) -> None:
    """Refuse, before a run begins, what is not installed."""
    for name in chosen(text):
        for package in PACKAGES[name]:
            need(package, name)


class Logs:
    """The loggers of one run; `follow` writes what was committed since the last time."""

    def __init__(self, record: Record, text: str, say: Say) -> None:
        self.record, self.say = record, say
        self.waiting = chosen(text)
        self._follower = Follower(record.path)
        self._sinks: dict[str, tuple[Sink, int]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def follow(self) -> int:
        """How many rounds were written."""
        if not self.waiting and not self._sinks:
            return 0
        self._follower.look()
        for name in self.waiting:
            self._guarded(name, partial(self._open, name))
        self.waiting = []
        before = sum(done for _, done in self._sinks.values())
        for name in list(self._sinks):
            self._guarded(name, partial(self._write, name))
        return sum(done for _, done in self._sinks.values()) - before

    def _open(self, name: str) -> None:
        held = read_holdings(self.record.path)
        began = (self.record.path / CONFIG).stat().st_mtime
        settings = flatten(self.record.config())
        sink = SINKS[name](About(self.record.path, settings, held.classes if held else (), began))
        self._stack.callback(self._guarded, name, sink.close)
        self._sinks[name] = sink, sink.rounds(len(self._follower.lines))

    def _write(self, name: str) -> None:
        sink, done = self._sinks[name]
        lines = self._follower.lines
        began = math.floor((self.record.path / CONFIG).stat().st_mtime)
        ends = list(accumulate((line.seconds for line in lines), initial=float(began)))[1:]
        for line, at in zip(lines[done:], ends[done:], strict=True):
            sink.write(line, at)
            self._sinks[name] = sink, line.round

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        """A logger that fails costs its own rounds and no other's."""
        try:
            act()
        except Exception as error:  # what others' packages raise is not known
            reason = str(error) if isinstance(error, UserError) else one_line(error)
            self._sinks.pop(name, None)
            self.say(f"log={name} was left out: {reason} Bring it up to date with: rebafl log {self.record.path}")


def log_run(record: Record, text: str) -> int:
    """Bring the loggers of a run up to date; how many rounds were written in all. Raises if one of them fails."""
    problems: list[str] = []
    with Logs(record, text, problems.append) as logs:
        written = logs.follow()
    if problems:
        raise UserError(problems[0])
    return written
