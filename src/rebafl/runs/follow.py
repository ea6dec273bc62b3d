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


class Tail:
    """The committed bytes of `rounds.jsonl`, as they grow; they are held against the checkpoint's digest."""

    def __init__(self, path: Path) -> None:
        self.record = Record(path)
        self._length, self._hash = 0, hashlib.sha256()

    def look(self) -> tuple[bool, bytes]:
        """Does what was read before still stand? It does not if the run was rolled back. And what is new."""
        for _ in range(TRIES):
            if not self.record.begun:
                self._forget()
                return False, b""
            manifest = self.record.committed()
            if manifest.bytes == self._length and manifest.rounds in ("", self._hash.hexdigest()):
                return True, b""
            if self._length and manifest.bytes > self._length:
                data = self._read_on(manifest.bytes, manifest.rounds)
                if data is not None:
                    return True, data
            self._forget()
            data = self._read_on(manifest.bytes, manifest.rounds)
            if data is not None:
                return False, data
        raise UserError(f"{self.record.path / ROUNDS} is not what the checkpoint knows of it; restore it.")

    def _forget(self) -> None:
        self._length, self._hash = 0, hashlib.sha256()

    def _read_on(self, until: int, digest: str) -> bytes | None:
        """What there is up to this length; None if that does not have this digest."""
        try:
            with (self.record.path / ROUNDS).open("rb") as file:
                file.seek(self._length)
                data = file.read(until - self._length)
        except OSError:
            data = b""
        total = self._hash.copy()
        total.update(data)
        if self._length + len(data) != until or (digest and total.hexdigest() != digest):
            return None
        self._length, self._hash = until, total
        return data


class Follower:
    """Reads a run again and again; `lines` are all rounds that were committed at the last look."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, list[RoundLine]()
        self._tail = Tail(path)

    def look(self) -> int:
        """Read what is new; how many of the lines before it still stand: none, if the run was rolled back."""
        stands, data = self._tail.look()
        try:
            new = [RoundLine.read(json.loads(line)) for line in data.splitlines()]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{self.path / ROUNDS} is damaged ({error}); restore it.") from None
        kept = len(self.lines) if stands else 0
        self.lines = self.lines[:kept] + new
        return kept
