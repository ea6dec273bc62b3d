"""How do rounds get into Weights & Biases? As offline runs in the run directory, which `wandb sync` uploads.

Each process that writes leaves a file of its own, all of one run. How far they reach is read from these files: they are
logs of records in blocks, as LevelDB has them. W&B writes them from a process of its own, which is waited for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ..events import RoundLine
from .sink import About, numbers

BLOCK, BEGIN, HEAD = 32768, 7, 7  # bytes of a block, before the first record, and before each record
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of records
PATIENCE = 30.0  # seconds for the writer of a process that was killed


class Wandb:
    """An offline run."""

    def __init__(self, about: About) -> None:
        self.about = about
        self.run: Any = None
        self.id = sha256(str(about.path.resolve()).encode()).hexdigest()[:12]
        about.folder.mkdir(parents=True, exist_ok=True)

    def rounds(self, committed: int) -> int:
        _wait_for_writers(self.about.folder)
        return min(committed, max(self.steps(), default=0))

    def steps(self) -> list[int]:
        """The rounds that stand in the files, oldest file first."""
        return [step for file in sorted(self.about.folder.glob("wandb/*run-*/*.wandb")) for step in _steps(file)]

    def write(self, line: RoundLine, at: float) -> None:
        self._started().log({**numbers(line, self.about.classes), "round": line.round}, step=line.round)

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
            _wait_for_writers(self.about.folder)

    def _started(self) -> Any:
        if self.run is None:
            import wandb

            quiet = wandb.Settings(
                silent=True, console="off", x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True
            )
            name, config = self.about.path.resolve().name, dict(self.about.settings)
            where: dict[str, Any] = {
                "mode": "offline",
                "dir": self.about.folder,
                "project": "rebafl",
                "id": self.id,
                "name": name,
            }
            self.run = wandb.init(**where, config=config, settings=quiet)
        return self.run


def _steps(file: Path) -> list[int]:
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # it makes its classes when it is imported
    found = []
    for data in _records(file.read_bytes()):
        record = messages.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            names = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found += [int(float(names["round"]))] if "round" in names else []
    return found


def _records(content: bytes) -> Iterator[bytes]:
    """The whole records of a file; what was torn off at its end is left out."""
    place, parts = BEGIN, b""
    while True:
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
        if place + HEAD > len(content):
            return
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        data = content[place + HEAD : place + HEAD + length]
        if len(data) < length or not kind:
            return
        place += HEAD + length
        parts = data if kind in (WHOLE, FIRST) else parts + data
        if kind in (WHOLE, LAST):
            yield parts


def _wait_for_writers(folder: Path) -> None:
    """Until nobody has a file here open: W&B's process outlives ours by a moment."""
    end = time.monotonic() + PATIENCE
    while _written(folder.resolve()):
        if time.monotonic() > end:
            raise UserError(f"{folder} is still being written by W&B; wait for it, or end it.")
        time.sleep(0.1)


def _written(folder: Path) -> bool:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:  # it ended meanwhile, or is not ours
            continue
        if target.startswith(f"{folder}{os.sep}") and target.endswith(".wandb"):
            return True
    return False
