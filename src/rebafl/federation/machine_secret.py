"""What do the processes of one machine know that its other users do not? A secret in the machine's folder."""

from __future__ import annotations

import secrets
from pathlib import Path

from ..base.errors import UserError
from ..base.files import write_secret

SECRET = "secret"


def make_secret(folder: Path) -> None:
    write_secret(folder / SECRET, secrets.token_bytes(32))


def read_secret(folder: Path) -> bytes:
    """The secret of the machine with this folder; one that others can read is none."""
    path = folder / SECRET
    try:
        secret, others = path.read_bytes(), path.stat().st_mode & 0o077
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); start this machine's script as its owner."
        ) from None
    if others:
        raise UserError(f"{path} can be read by other users of this machine; close it with: chmod 600 {path}")
    if len(secret) < 16:
        raise UserError(f"{path} is too short for a secret; remove it, and start the server again.")
    return secret
