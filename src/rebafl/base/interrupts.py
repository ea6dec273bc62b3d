"""What does Ctrl-C do before the command has begun and after it has ended? It ends the process, with one word.

Importing torch takes seconds. Interrupted there, Python would print where it was; and since nothing has begun yet,
nothing could be lost. So this module is the first to be imported, and imports nothing that takes time. A program or
notebook that imports the library is not the command, and keeps its own ways.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType


def _is_command() -> bool:
    """Is this process `rebafl …` or `python -m rebafl …`? For as long as Python looks for a module, argv[0] is `-m`."""
    name = Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
    module = ("-m", "rebafl") in pairwise(sys.orig_argv) or "-mrebafl" in sys.orig_argv
    return name == "rebafl" or (name == "-m" and module)


COMMAND = _is_command()


def ends_at_once() -> None:
    """From now on, unless Ctrl-C is ignored or somebody else's."""
    if COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def forgotten() -> None:
    """Let an interrupt that was handled not end the process after all.

    Python remembers one that came while it executed a string, as dataclasses do when they are made, until it
    executes another; at the end it would then kill itself with the signal instead of leaving with its exit code.
    """
    exec("")


def as_usual() -> None:
    """Ctrl-C raises KeyboardInterrupt again: there is something to save and to say."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(Exception):  # it may be what was interrupted
        sys.stdout.flush()
    os.write(2, b"Stopped.\n")
    os._exit(130)


ends_at_once()
