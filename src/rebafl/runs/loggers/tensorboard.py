"""How do rounds get into TensorBoard? As one event file, with one record per round; what a kill tore off is cut."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from ..events import RoundLine
from .sink import About, numbers

HEADER, CHECK = struct.Struct("<Q"), struct.Struct("<I")
NAME = "events.out.tfevents.0.rebafl"


class TensorBoard:
    """An event file in the run directory. Its first record says which format it is, the second holds the settings."""

    def __init__(self, about: About) -> None:
        self.about = about
        folder = about.folder / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)

    def rounds(self, committed: int) -> int:
        from tensorboardX.proto.event_pb2 import Event

        end, done = 0, 0
        for data, after in self._records():
            event = Event.FromString(data)
            if event.step > committed:
                break
            end, done = after, max(done, event.step)
        os.ftruncate(self.file, end)
        os.lseek(self.file, end, os.SEEK_SET)
        if not end:
            self._begin()
        return done

    def write(self, line: RoundLine, at: float) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        values = numbers(line, self.about.classes)
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._append(wall_time=at, step=line.round, summary=summary)

    def close(self) -> None:
        os.close(self.file)

    def _begin(self) -> None:
        from tensorboardX.summary import text

        rows = "".join(f"| {name} | `{value}` |\n" for name, value in self.about.settings.items())
        self._append(wall_time=self.about.began, file_version="brain.Event:2")
        table = text("settings", f"| setting | value |\n|---|---|\n{rows}")
        self._append(wall_time=self.about.began, step=0, summary=table)

    def _append(self, **event: Any) -> None:
        """One record, in one write."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        data = Event(**event).SerializeToString()
        length = HEADER.pack(len(data))
        checks = [CHECK.pack(masked_crc32c(part)) for part in (length, data)]
        os.write(self.file, length + checks[0] + data + checks[1])

    def _records(self) -> Iterator[tuple[bytes, int]]:
        """The whole and undamaged records from the beginning, and where each ends."""
        from tensorboardX.record_writer import masked_crc32c

        content, place = self.path.read_bytes(), 0
        while place + HEADER.size + CHECK.size <= len(content):
            length = content[place : place + HEADER.size]
            begin = place + HEADER.size + CHECK.size
            end = begin + HEADER.unpack(length)[0]
            checks = content[place + HEADER.size : begin], content[end : end + CHECK.size]
            if checks != (CHECK.pack(masked_crc32c(length)), CHECK.pack(masked_crc32c(content[begin:end]))):
                return
            place = end + CHECK.size
            yield content[begin:end], place
