"""How is a file read that anybody may have made? Only if it is a regular one: a pipe blocks, a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from .errors import UserError

OF_THE_PACKAGE = "rebafl:"
"""What a path begins with, in settings, that leads to a file of this package: the same words on every machine."""

NOT_A_FILE = "it is a folder, a pipe or a device, not a file"


def located(path: str) -> Path:
    """The file that a path in settings leads to; `rebafl:paper/a.csv` came with the package."""
    if path.startswith(OF_THE_PACKAGE):
        inside = Path(path.removeprefix(OF_THE_PACKAGE))
        if inside.is_absolute() or ".." in inside.parts or not inside.name:
            raise UserError(
                f"path {path!r} leads out of the package; {OF_THE_PACKAGE} is followed by a file that comes with it, "
                f"such as {OF_THE_PACKAGE}paper/authors-participation.csv."
            )
        return Path(__file__).parents[1] / inside
    return Path(path)


def opened(path: Path) -> IO[bytes]:
    """A regular file, open for reading; raises `OSError` at once for anything else."""
    _need_regular(os.stat(path).st_mode, path)  # even opening some devices has an effect
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _need_regular(os.fstat(handle).st_mode, path)  # it may have been replaced meanwhile
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Path) -> bytes:
    with opened(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """UTF-8, with line ends as `Path.read_text` gives them."""
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def _need_regular(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_A_FILE, str(path))
