"""What are a run's curves? Read from `rounds.jsonl` without making objects of its lines: hundreds of runs are overlaid.

The committed bytes are known to be undamaged, and every line was written by this package, so a number can be found by
the name before it. A name within a reason's text cannot be taken for one: its quotation marks are escaped there.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path

from ..runs.follow import Tail

CURVES = ("accuracy", "loss", "diversity", "bytes_up", "bytes_down", "seconds")
_NUMBERS = {name: re.compile(rb'"%b": (null|[-+0-9.eE]+)' % name.encode()) for name in CURVES}


class Scan:
    """The curves of one run, kept up to date; NaN where there is no number."""

    def __init__(self, path: Path) -> None:
        self.curves = {name: array("d") for name in CURVES}
        self._tail = Tail(path)

    @property
    def rounds(self) -> int:
        return len(self.curves["accuracy"])

    def look(self) -> int:
        """Read what is new; how many rounds of before still stand."""
        stands, data = self._tail.look()
        kept = self.rounds if stands else 0
        if not stands:
            self.curves = {name: array("d") for name in CURVES}
        for name, numbers in _NUMBERS.items():
            found = numbers.findall(data)
            self.curves[name].extend(float("nan") if text == b"null" else float(text) for text in found)
        return kept
