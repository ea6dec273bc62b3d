"""What can a user put right? Everything that raises `UserError`, and nothing else; and is this word a path?"""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """A mistake in the input. The message is one sentence: what is wrong, where, and what to do."""


def exists(path: Path) -> bool:
    """Like `Path.exists`, for words that cannot be a path at all, too."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
