"""How do rounds get into Weights & Biases? As one offline run in the run directory, which `wandb sync` uploads.

Its file is written here, and not by W&B's service: that is a process of its own, which outlives a killed run and goes
on writing. The file is a log of records in blocks, as LevelDB has them; a record is one of W&B's own protobuf messages.
A round is one write of its numbers, and what a kill tore off is cut.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from ..events import RoundLine
from ..record import run_name
from .sink import About, numbers

BEGIN = b":W&B" + (0xBEE1).to_bytes(2, "little") + b"\0"  # with which a file begins: name, mark and version
BLOCK, HEAD = 32768, 7  # bytes of a block, and before each piece of a record
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4  # kinds of pieces
OLDEST_READER = "0.70.0"  # of W&B, that understands these records


class Wandb:
    """An offline run. Its first records say which version wrote it and what the settings are."""

    def __init__(self, about: About) -> None:
        from wandb.proto import wandb_internal_pb2

        self.about = about
        self.messages: Any = wandb_internal_pb2  # it makes its classes when it is imported
        self.id = sha256(str(about.path.resolve()).encode()).hexdigest()[:12]
        began = time.strftime("%Y%m%d_%H%M%S", time.gmtime(about.began))
        folder = about.folder / "wandb" / f"offline-run-{began}-{self.id}"
        folder = next(about.folder.glob(f"wandb/offline-run-*-{self.id}"), folder)
        (folder / "files").mkdir(parents=True, exist_ok=True)  # in which `wandb sync` puts its own
        self.path = folder / f"run-{self.id}.wandb"
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)

    def rounds(self, committed: int) -> int:
        end, done = 0, 0
        for data, after in records(self.path.read_bytes()):
            record = self.messages.Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history" and record.history.step.num > committed:
                break
            if kind in ("run", "history"):  # before the first round, and after each
                end, done = after, record.history.step.num
        os.ftruncate(self.file, end)
        os.lseek(self.file, end, os.SEEK_SET)
        if not end:
            self._begin()
        return done

    def write(self, line: RoundLine, at: float) -> None:
        self._forget_upload()
        values = {**numbers(line, self.about.classes), "round": line.round}
        values.update(_step=line.round, _timestamp=at, _runtime=at - self.about.began)
        items = [{"nested_key": [name], "value_json": in_json(value)} for name, value in values.items()]
        self._append({"summary": {"update": items}}, {"history": {"item": items, "step": {"num": line.round}}})

    def close(self) -> None:
        if os.lseek(self.file, 0, os.SEEK_CUR):  # unless it could not be read
            self._append({"exit": {"exit_code": 0}})
        os.close(self.file)

    def _begin(self) -> None:
        from wandb import __version__

        os.write(self.file, BEGIN)
        config = [{"key": name, "value_json": in_json(value)} for name, value in self.about.settings.items()]
        run = {
            "run_id": self.id,
            "project": "rebafl",
            "display_name": run_name(self.about.path),
            "config": {"update": config},
            "start_time": {"seconds": int(self.about.began)},
        }
        version = {"producer": __version__, "min_consumer": OLDEST_READER}
        self._append({"header": {"version_info": version}}, {"run": run})

    def _append(self, *contents: dict[str, Any]) -> None:
        """Some records, in one write."""
        data = [self.messages.Record(**content).SerializeToString() for content in contents]
        os.write(self.file, pieces(data, os.lseek(self.file, 0, os.SEEK_CUR)))

    def _forget_upload(self) -> None:
        """What `wandb sync` notes beside a file that it has uploaded is no longer so."""
        self.path.with_name(f"{self.path.name}.synced").unlink(missing_ok=True)


def in_json(value: Any) -> str:
    """As W&B writes it: what JSON has no number for is text."""
    text = json.dumps(value)
    return f'"{text}"' if text in ("NaN", "Infinity", "-Infinity") else text


def pieces(records: list[bytes], place: int) -> bytes:
    """The records as they are written from a place on: no piece of them reaches from one block into the next."""
    written = bytearray()
    for record in records:
        kinds, rest = (FIRST, WHOLE), record
        while True:
            left = BLOCK - (place + len(written)) % BLOCK
            if left < HEAD:
                written += bytes(left)
                left = BLOCK
            part, rest = rest[: left - HEAD], rest[left - HEAD :]
            kind = bytes([kinds[not rest]])
            written += zlib.crc32(kind + part).to_bytes(4, "little") + len(part).to_bytes(2, "little") + kind + part
            if not rest:
                break
            kinds = (MIDDLE, LAST)
    return bytes(written)


def records(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The whole and undamaged records of a file from its beginning, and where each ends."""
    place, parts = len(BEGIN), b""
    while content.startswith(BEGIN):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
        head = content[place : place + HEAD]
        length, kind = int.from_bytes(head[4:6], "little"), head[6:]
        data = content[place + HEAD : place + HEAD + length]
        if len(data) < length or zlib.crc32(kind + data) != int.from_bytes(head[:4], "little") or not any(kind):
            return
        place += HEAD + length
        parts = data if kind[0] in (WHOLE, FIRST) else parts + data
        if kind[0] in (WHOLE, LAST):
            yield parts, place
