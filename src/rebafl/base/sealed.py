"""How does a JSON file tell that it was damaged? Its last entry is the SHA-256 of every byte before that entry.

A file without such an entry was written by an earlier version and is read as it is. So whoever reads one must
refuse entries it does not know: the entry's own name may be what was damaged.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .files import sha256

SEAL = "sha256"
LAST = re.compile(rb',\n *"%b": "([0-9a-f]{64})"\n\}\n' % SEAL.encode())


def seal(text: str) -> bytes:
    """A JSON object that is not empty, as text, with its digest as the last entry."""
    body = text.rstrip().removesuffix("}").rstrip().encode()
    return body + b',\n "%b": "%b"\n}\n' % (SEAL.encode(), sha256(body).encode())


def unseal(data: bytes) -> tuple[dict[str, Any], bool]:
    """The object without its seal, and whether it had one. Raises `ValueError` for what is damaged."""
    try:
        loaded = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(loaded, dict):
        raise ValueError("it is no table of values")
    if SEAL not in loaded:
        return loaded, False
    last = LAST.search(data, max(0, len(data) - 100))
    if last is None or last.end() != len(data) or last[1].decode() != sha256(data[: last.start()]):
        raise ValueError("its SHA-256 is not the one it records")
    del loaded[SEAL]
    return loaded, True
