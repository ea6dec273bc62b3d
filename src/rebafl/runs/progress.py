"""How far is the round that is under way? A small file that is replaced as clients finish, for whoever follows a run.

Nothing depends on it: it is not flushed to the disk, and a write that fails is left out.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from ..base.files import ASIDE

PROGRESS = "progress.json"  # in the run directory
PAUSE = 0.25  # seconds between two writes: a round may have thousands of clients
Stage = Literal["waiting", "training", "scoring"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Progress:
    """`done` of `of` clients of a round are done; `at` is when this was written, in seconds since 1970."""

    round: int
    stage: Stage
    done: int
    of: int
    at: float


class ProgressFile:
    """Says in a run's directory how far its round is."""

    def __init__(self, folder: Path, round: int) -> None:
        self.path, self.round = folder / PROGRESS, round
        self.done = self.of = 0
        self._written = 0.0

    def say(self, stage: Stage, of: int | None = None) -> None:
        """The round has come to another stage; `of` clients are expected."""
        self.of = self.of if of is None else of
        self._write(stage)

    def client_done(self) -> None:
        self.done += 1
        if time.monotonic() - self._written >= PAUSE:
            self._write("training")

    def _write(self, stage: Stage) -> None:
        now = Progress(self.round, stage, self.done, self.of, round(time.time(), 2))
        aside = self.path.with_name(self.path.name + ASIDE)
        with suppress(OSError):
            aside.write_text(json.dumps(asdict(now)), encoding="utf-8")
            aside.replace(self.path)
        self._written = time.monotonic()


def read_progress(folder: Path) -> Progress | None:
    """What a run said last; None if it says nothing."""
    try:
        values = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        numbers = {name: int(values[name]) for name in ("round", "done", "of")}
        stage = next(stage for stage in STAGES if stage == values["stage"])
        return Progress(**numbers, stage=stage, at=float(values["at"]))
    except (OSError, ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return None
