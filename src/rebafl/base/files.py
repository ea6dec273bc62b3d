"""How are files kept whole? Written aside and renamed, locked against a second writer, known by their digest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import UserError, exists

ASIDE = ".aside"
LOCK = ".lock"
POLL = 0.2  # seconds between two tries to get a lock


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            total.update(part)
    return total.hexdigest()


def cache_folder() -> Path:
    """The user's cache, a folder of ours in it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rebafl"


def write_whole(path: Path, data: bytes) -> None:
    """A whole file or none: written aside, flushed to the disk, renamed."""
    aside = path.with_name(path.name + ASIDE)
    try:
        with aside.open("wb") as file:
            _write_through(file, data)
        aside.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def write_secret(path: Path, data: bytes) -> None:
    """The same for a file that nobody but its owner may read, from the first byte on."""
    aside = path.with_name(path.name + ASIDE)
    try:
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            _write_through(file, data)
        aside.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def write_text(path: Path, text: str) -> None:
    """A file for people, and the folders above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).") from None


def write_named(path: Path, write: Callable[[Path], None], name: Callable[[str], str]) -> str:
    """The same for a file that `write` writes, under a name that its SHA-256 gives it; that digest.

    It is flushed to the disk when the caller says so, by `sync`.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        write(aside)
        digest = sha256_of_file(aside)
        aside.replace(path.with_name(name(digest)))
    except OSError as error:
        raise cannot_write(path, error) from None
    return digest


def append(path: Path, data: bytes) -> None:
    try:
        with path.open("ab") as file:
            _write_through(file, data)
    except OSError as error:
        raise cannot_write(path, error) from None


def _write_through(file: IO[bytes], data: bytes) -> None:
    """Write to the disk, not only to the system's memory."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path} cannot be written ({error.strerror}); nothing that was written before is lost: "
        "make room and run the same command again."
    )


def sync(path: Path) -> None:
    """A file, or the renames in a folder, reach the disk even if the power goes."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot_write(path, error) from None


_held: set[Path] = set()
_guard = threading.Lock()
"""Which folders this process has locked: the system's locks keep out other processes, but not other threads."""
os.register_at_fork(after_in_child=_held.clear)


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Keep every other writer out of a folder; waits so many seconds for it. The lock vanishes with the process."""
    until = time.monotonic() + patience
    key = folder.resolve()
    _wait(lambda: _take(key), folder, until)
    try:
        with _lock_file(folder) as file:
            _wait(lambda: _locks(file), folder, until)
            yield
    finally:
        with _guard:
            _held.discard(key)


def is_locked(folder: Path) -> bool:
    """Is somebody writing in this folder?"""
    if not exists(folder / LOCK):
        return False
    with _guard:
        if folder.resolve() in _held:  # opening and closing the file here would give the lock away
            return True
        with (folder / LOCK).open("r+") as file:
            return not _locks(file)


def _lock_file(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / LOCK, "w", opener=_without_waiting)
    except OSError as error:
        raise UserError(f"{folder} cannot hold a run ({error.strerror}); choose another out=DIRECTORY.") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe in place of the file would block


def _wait(taken: Callable[[], bool], folder: Path, until: float) -> None:
    while not taken():
        if time.monotonic() >= until:
            raise UserError(f"{folder} is being written by another process or thread; wait for it or stop it.")
        time.sleep(POLL)


def _take(key: Path) -> bool:
    with _guard:
        free = key not in _held
        _held.add(key)
        return free


def _locks(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
