"""How is something said to the user in words? The type of what prints a sentence, and an exception in words.

And how is a text shown that somebody else wrote? With nothing in it that a terminal would act on.
"""

from __future__ import annotations

import os
import traceback
import unicodedata
from collections.abc import Callable
from pathlib import Path

from .errors import UserError

PACKAGE = Path(__file__).parents[1]
DEBUG = "REBAFL_DEBUG"  # in the environment, so that worker processes know it; `--debug` sets it
Say = Callable[[str], None]
"""Prints a sentence, such as `print`."""


def one_line(error: BaseException) -> str:
    """An exception's type and message in one short line, for a sentence."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def failure(error: BaseException) -> str:
    """The same for the record, where one failure must look like another: without the lines that give details.

    It says where the user's own code failed, if it was that, without its folder, which is nobody else's business.
    """
    if isinstance(error, UserError):
        return f"{error}".splitlines()[0][:300]
    return f"{type(error).__name__}: {error}".splitlines()[0][:300] + own_place(error, folder=False)


def debugging() -> bool:
    """Does the user want to see tracebacks?"""
    return bool(os.environ.get(DEBUG))


def traceback_of(error: BaseException) -> str:
    """The whole story of a failure if it is wanted, else ''."""
    return "".join(traceback.format_exception(error)) if debugging() else ""


def printable(text: str) -> str:
    """The text with every character that is not shown but acts, such as those of escape sequences, written out."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    kept = character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return character if kept else character.encode("unicode_escape").decode()


def own_place(error: BaseException, folder: bool = True) -> str:
    """` at FILE:LINE`, of the innermost line of the user's own code that an exception came through; '' if none did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    if not own:
        return ""
    file = Path(own[-1].filename)
    return f" at {file if folder else file.name}:{own[-1].lineno}"


def is_users(file: str) -> bool:
    """Is this a file of the user's: not of this package, neither installed nor part of Python itself?"""
    of_python = ("<frozen", str(Path(traceback.__file__).parent))
    return PACKAGE not in Path(file).parents and "site-packages" not in file and not file.startswith(of_python)
