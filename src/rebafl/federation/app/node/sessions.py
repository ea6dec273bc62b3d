"""Where are a node's secrets between two messages of a masked round? In a file that is read once and is gone then.

Flower may handle each message in a process of its own. A step begins by taking the file away, for good, and ends by
writing the next one: a process that is killed in between leaves nothing behind, and no message, however often it comes,
finds the node at an earlier step. A new round removes what an earlier one left.

The ids of rounds, and what was summed in them, are marked for good, over all runs: nobody gets two sums of one upload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....base.files import cannot_write, sync, write_secret
from ....secagg.fixed_point import WORD, Vector

SESSIONS, MARKS = "masked", "masked-before"
EMPTY: Vector = np.zeros(0, dtype=WORD)


@dataclass(frozen=True)
class Session:
    """What a node keeps between two steps: how to make the terms again, the client's secrets, and its vector."""

    terms: Mapping[str, object]
    secrets: bytes
    summed: str
    """Stands for what the upload was computed from."""
    vector: Vector

    def to_bytes(self) -> bytes:
        head = {"terms": dict(self.terms), "secrets": self.secrets.decode(), "summed": self.summed}
        return json.dumps(head).encode() + b"\n" + self.vector.tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> Session:
        head, _, words = data.partition(b"\n")
        values = json.loads(head)
        vector = np.frombuffer(words, dtype=WORD)
        return Session(values["terms"], values["secrets"].encode(), values["summed"], vector)


class Sessions:
    """Those of one client in one run, of which there is one at a time; and the marks of all runs."""

    def __init__(self, state: Path, run: str, client: int) -> None:
        self.folder = state / run / f"client-{client}" / SESSIONS
        self.marks = state / MARKS

    def begin(self) -> None:
        """Make room for a round: whatever an earlier one left is removed."""
        for folder in (self.folder, self.marks):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise cannot_write(folder, error) from None
        self.clear()

    def clear(self, round_id: str = "") -> None:
        """Remove what is left of this round, or of all."""
        for path in self.folder.glob(f"session-{round_id}*"):
            path.unlink(missing_ok=True)

    def put(self, round_id: str, session: Session) -> None:
        write_secret(self._file(round_id), session.to_bytes())

    def take(self, round_id: str) -> Session | None:
        """Read and remove; None if there is none, or if another process was faster."""
        taken = self._file(round_id).with_suffix(".taken")
        try:
            self._file(round_id).rename(taken)
            data = taken.read_bytes()
            taken.unlink()
        except FileNotFoundError:
            return None
        sync(self.folder)
        return Session.from_bytes(data)

    def is_marked(self, mark: str) -> bool:
        return (self.marks / mark).exists()

    def mark(self, mark: str) -> bool:
        """Set a mark for good; False if it was set before, by whatever process."""
        try:
            (self.marks / mark).touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError as error:
            raise cannot_write(self.marks, error) from None
        sync(self.marks)
        return True

    def _file(self, round_id: str) -> Path:
        return self.folder / f"session-{round_id}"
