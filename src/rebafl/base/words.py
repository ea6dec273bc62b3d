"""How is something said to the user in words? The type of what prints a sentence, and an exception in one line."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Prints a sentence, such as `print`."""


def one_line(error: BaseException) -> str:
    """An exception's type and message in one short line, for a sentence."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def first_line(error: BaseException) -> str:
    """The same for the record, where one failure must look like another: without the lines that give details."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
