"""How are long lists of clients written into a line of `rounds.jsonl`? Short: as ranges, or as one bit per client.

A list below a thousand clients stays a list, for people and for jq. A longer one becomes a string, whichever is
shorter: `"0-99999"`, `"3,7-12,40"`, or `"bits:"` and, in base64, one bit for each client from 0 on, the first in the
lowest bit of the first byte.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KEYS = ("active", "lost", "spent", "late", "unreached", "disconnected")
LONG = 1000  # clients
BITS = "bits:"
MOST = 10_000_000  # clients that a run may have: a damaged range must not fill the memory


def packed(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as it is written."""
    long = {key: _short(line[key]) for key in KEYS if len(line.get(key, ())) >= LONG}
    return {**line, **long}


def unpacked(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as it was. Raises `ValueError` for a string that is no list of clients."""
    return {**line, **{key: _list(line[key]) for key in KEYS if isinstance(line.get(key), str)}}


def _short(clients: Sequence[int]) -> str | Sequence[int]:
    numbers = np.asarray(clients, dtype=np.int64)
    if (np.diff(numbers) <= 0).any():  # what is in no order stays as it is
        return clients
    ends = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = numbers[[0, *(ends + 1)]], numbers[[*ends, -1]]
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    ranges = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)
    if len(ranges) * 6 <= numbers[-1]:  # base64 takes a letter for six clients
        return ranges
    members = np.zeros(int(numbers[-1]) + 1, dtype=bool)
    members[numbers] = True
    return BITS + base64.b64encode(np.packbits(members, bitorder="little").tobytes()).decode()


def _list(text: str) -> list[int]:
    if text.startswith(BITS):
        data = np.frombuffer(base64.b64decode(text.removeprefix(BITS), validate=True), dtype=np.uint8)
        clients: list[int] = np.flatnonzero(np.unpackbits(data, bitorder="little")).tolist()
        return clients
    clients = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        low, high = int(first), int(last or first)
        if not (clients[-1] if clients else -1) < low <= high < MOST:
            raise ValueError(f"{word!r} is no range of clients")
        clients.extend(range(low, high + 1))
    return clients
