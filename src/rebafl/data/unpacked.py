"""How much may a file hold once it is unpacked? As much as fits here, and not hundreds of times its own size."""

from __future__ import annotations

import os

from ..base.errors import UserError

FREE = 2**28  # bytes that any file may unpack to
RATIO = 100  # beyond that: how many times its own size; images as they are pack to a third, or a tenth


def check_unpacked(where: object, packed: int, unpacked: int) -> None:
    """Refuse what is made to fill the memory, before any of it is unpacked."""
    if unpacked > max(FREE, RATIO * packed):
        raise UserError(
            f"{where} has {packed:,} bytes and unpacks to {unpacked:,}, more than {RATIO} times as many; "
            "if that is meant, store it without compression."
        )
    if unpacked > memory():
        raise UserError(f"{where} unpacks to {unpacked:,} bytes, and this machine has {memory():,}; use fewer samples.")


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
