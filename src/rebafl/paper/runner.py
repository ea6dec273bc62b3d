"""How are hours of work done in slices? Cell by cell, each a resumable run, until all are done or time is up."""

from __future__ import annotations

import time
from pathlib import Path

from ..base.words import Say
from ..runs.events import Event, Listener, RoundLine
from ..runs.simulate import simulate
from .items import Cell
from .results import keep


class OutOfTime(Exception):
    """The budget is used up; what was done is saved."""


def run_cell(
    cell: Cell, results: Path, work: Path, until: float, listen: Listener, say: Say, accept_changes: bool = False
) -> None:
    """Run a cell to its end and keep its result; `OutOfTime` after the round in which the clock passes `until`."""

    def watch_clock(event: Event) -> None:
        listen(event)
        if isinstance(event, RoundLine) and time.monotonic() > until and event.round < cell.settings.rounds:
            raise OutOfTime

    record = simulate(cell.settings, work / cell.key, listen=watch_clock, say=say, accept_changes=accept_changes)
    keep(cell, record, results)
