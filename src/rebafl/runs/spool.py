"""Where do the uploads of a round wait for each other? In memory while they are few, then in a file.

A mean over uploads can be taken only when it is known which of them are used. A spooled upload looks like any
other: each of its tensors is read when it is asked for, and again if it is asked for again. So what a round holds in
memory does not grow with the number of clients, whatever an algorithm does with its uploads, one tensor at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from io import SEEK_END, BufferedRandom
from mmap import ACCESS_COPY, mmap
from mmap import ALLOCATIONGRANULARITY as ALIGNED
from pathlib import Path

import torch
from torch import Tensor

from ..algorithms.aggregate import Upload
from ..base.files import cannot_write

IN_MEMORY = 32 * 2**20  # bytes of uploads that are not worth a file
WORD = 64  # bytes; tensors of any type begin at multiples of it


class Spool:
    """The uploads of one round; its file has no name, and vanishes with the process or when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = 0
        self._stack = ExitStack()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if "file" in self.__dict__:
            self.file.truncate(0)  # a worker that was forked meanwhile has it open, too
        self._stack.close()

    @cached_property
    def file(self) -> BufferedRandom:
        return self._stack.enter_context(tempfile.TemporaryFile(dir=self.folder))

    def keep(self, upload: Upload) -> Upload:
        """The same upload, to be used until the spool is closed."""
        if self.held + upload.bytes <= IN_MEMORY:
            self.held += upload.bytes
            return upload
        try:
            change, shared = _stored(upload.change, self.file), _stored(upload.shared, self.file)
            # cloned, since it may be a view of the whole message that it came in
            return replace(upload, change=change, shared=shared, counts=upload.counts.clone())
        except OSError as error:
            raise cannot_write(self.folder, error) from None


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies in the file, and what it looks like."""

    offset: int
    like: Tensor  # on the meta device: without values


class _Stored(Mapping[str, Tensor]):
    """Named tensors in a file."""

    def __init__(self, file: BufferedRandom, places: Mapping[str, _Place]) -> None:
        self.file, self.places = file, places

    def __getitem__(self, name: str) -> Tensor:
        """Mapped into memory, not copied: blocks of such a size that come and go would leave the heap in pieces."""
        place = self.places[name]
        if not place.like.nbytes:
            return torch.empty(place.like.shape, dtype=place.like.dtype)
        page = place.offset // ALIGNED * ALIGNED
        length = place.offset - page + place.like.nbytes
        mapped = mmap(self.file.fileno(), length, access=ACCESS_COPY, offset=page)
        count, begin = place.like.numel(), place.offset - page
        return torch.frombuffer(mapped, dtype=place.like.dtype, count=count, offset=begin).view(place.like.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _stored(tensors: Mapping[str, Tensor], file: BufferedRandom) -> _Stored:
    places = {}
    for name, tensor in tensors.items():
        end = file.seek(0, SEEK_END)
        places[name] = _Place(end, torch.empty_like(tensor, device="meta"))
        file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
        file.write(bytes(-(end + tensor.nbytes) % WORD))
    file.flush()
    return _Stored(file, places)
