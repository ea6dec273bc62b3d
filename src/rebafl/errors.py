"""What can a user put right? Everything that raises `UserError`, and nothing else."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in the input. The message is one sentence: what is wrong, where, and what to do."""
