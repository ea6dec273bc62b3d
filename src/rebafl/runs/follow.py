"""What has a run committed since the last look? Only what is new is read, so that following a long run costs little.

Nothing is written and no lock is taken: a run does not notice that it is followed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..base.errors import UserError
from .events import RoundLine
from .record import ROUNDS, Record

TRIES = 3  # a look may fall between two writes of the run


class Follower:
    """Reads a run again and again; `lines` are all rounds that were committed at the last look."""

    def __init__(self, path: Path) -> None:
        self.record, self.lines = Record(path), list[RoundLine]()
        self._length, self._hash = 0, hashlib.sha256()

    def look(self) -> int:
        """Read what is new; how many of the lines before it still stand: fewer, if the run was rolled back."""
        for _ in range(TRIES):
            if not self.record.begun:
                self._forget()
                return 0
            manifest = self.record.committed()
            kept = len(self.lines)
            if manifest.bytes == self._length and manifest.rounds in ("", self._hash.hexdigest()):
                return kept
            if manifest.bytes > self._length and self._read_on(manifest.bytes, manifest.rounds):
                return kept
            self._forget()
            if self._read_on(manifest.bytes, manifest.rounds):
                return 0
        raise UserError(f"{self.record.path / ROUNDS} is not what the checkpoint knows of it; restore it.")

    def _forget(self) -> None:
        self.lines, self._length, self._hash = [], 0, hashlib.sha256()

    def _read_on(self, until: int, digest: str) -> bool:
        """Read up to this length; False, and nothing is taken over, if that does not have this digest."""
        path = self.record.path / ROUNDS
        try:
            with path.open("rb") as file:
                file.seek(self._length)
                data = file.read(until - self._length)
        except OSError:
            data = b""
        total = self._hash.copy()
        total.update(data)
        if self._length + len(data) != until or (digest and total.hexdigest() != digest):
            return False
        try:
            new = [RoundLine.read(json.loads(line)) for line in data.splitlines()]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        self.lines, self._length, self._hash = self.lines + new, until, total
        return True
