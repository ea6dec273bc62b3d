"""Where are a node's secrets between two messages of a masked round? In a file that is read once and is gone then.

Flower may handle each message in a process of its own. A step begins by taking the file away, for good, and ends by
writing the next one: a process that is killed in between leaves nothing behind, and no message, however often it comes,
finds the node at an earlier step. A new round removes what an earlier one left. The ids of rounds, and what was summed
in them, are remembered: nobody gets two sums of the same upload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....base.errors import UserError
from ....base.files import append, cannot_write, sync, write_secret
from ....secagg.fixed_point import WORD, Vector

FOLDER, ROUNDS = "masked", "rounds"
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
    """Those of one client in one run; there is one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER

    def begin(self) -> None:
        """Make room for a round: whatever an earlier one left is removed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise cannot_write(self.folder, error) from None
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

    def remember(self, mark: str) -> None:
        """So that `knows` says so for ever."""
        append(self.folder / ROUNDS, f"{mark}\n".encode())

    def knows(self, mark: str) -> bool:
        path = self.folder / ROUNDS
        try:
            return mark in path.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise UserError(f"{path} does not say which rounds were masked ({error}); restore it.") from None

    def _file(self, round_id: str) -> Path:
        return self.folder / f"session-{round_id}"
