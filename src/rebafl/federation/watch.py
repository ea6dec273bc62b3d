"""How is a file followed that an operator may replace at any time? By a look every second, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

EVERY = 1.0  # seconds between two looks

State = tuple[tuple[int, int, int] | None, ...]


def state_of(paths: Sequence[Path]) -> State:
    """What changes when one of these files does."""
    return tuple(_state(path) for path in paths)


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def follow(paths: Sequence[Path], act: Callable[[], bool]) -> threading.Thread:
    """Call `act` whenever a file has changed, and again until it is true: several files are not replaced at once."""
    before = state_of(paths)

    def look() -> None:
        nonlocal before
        while True:
            time.sleep(EVERY)
            if (now := state_of(paths)) != before and act():
                before = now

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread
