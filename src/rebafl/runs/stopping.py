"""How is a run stopped so that nothing is lost? By a request in its directory, which is honoured between two rounds.

The record is then that of a run that was never stopped, up to that round, and the run can be resumed. A request that
nobody honours, since the run was killed meanwhile, is forgotten when it is resumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..base.errors import UserError
from ..base.files import is_locked, write_whole
from .record import Record, open_run
from .settings import Settings

STOP = "stop.json"  # in the run directory


def request_stop(folder: Path) -> None:
    """Ask the process that writes this run to end after the round it is in."""
    record = open_run(folder)
    if not is_locked(folder):
        done = len(record.rounds()) if record.begun else 0
        raise UserError(f"{folder} is not running, so there is nothing to stop; it has {done} finished rounds.")
    _write(folder, {"requested": True})


def is_requested(folder: Path) -> bool:
    return bool(_read(folder).get("requested"))


def stopped_after(folder: Path) -> int | None:
    """The round after which the run was stopped on request; None if it was not."""
    round = _read(folder).get("stopped_after")
    return round if isinstance(round, int) else None


def honours_stop(folder: Path, round: int) -> bool:
    """Is this run to stop here, after so many rounds? The writer of the run asks between two rounds."""
    if not is_requested(folder):
        return False
    _write(folder, {"stopped_after": round})
    return True


def is_over(record: Record, settings: Settings) -> bool:
    """Has a run done its rounds, or stopped getting better? The writer of the run asks between two rounds."""
    if record.round >= settings.rounds:
        return True
    if not settings.stop.is_over(record.validation):
        return False
    if plateau_after(record.path) != record.round:
        _write(record.path, {"plateau_after": record.round})
    return True


def plateau_after(folder: Path) -> int | None:
    """The round after which the run ended since it had stopped getting better; None if it did not."""
    round = _read(folder).get("plateau_after")
    return round if isinstance(round, int) else None


def forget_stop(folder: Path) -> None:
    """The run is resumed: what was requested before does not count any more."""
    (folder / STOP).unlink(missing_ok=True)


def _write(folder: Path, values: dict[str, Any]) -> None:
    write_whole(folder / STOP, json.dumps(values).encode())


def _read(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads((folder / STOP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
