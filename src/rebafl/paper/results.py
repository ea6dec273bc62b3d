"""What is kept of a finished cell? One small JSON file: its curve, settings, seed, commit and environment.

Files are named by what was run, so results from several machines merge by copying them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ..base.config import Plain
from ..base.errors import UserError
from ..base.files import write_whole
from ..base.sealed import seal, unseal
from ..runs.events import RoundLine
from ..runs.measures import OF_ACCURACY
from ..runs.record import Record
from ..runs.settings import Settings, complete
from ..runs.tally import Tally, tally
from .items import Cell

CLOUD = "cloud_accuracy"
CURVES = ("accuracy", "loss", "diversity", "seconds", "bytes_up", "bytes_down", CLOUD)
"""Of each round. Accuracy, loss and Λ are kept to the last bit: a repetition must give the same."""

WORST_RECALL = "worst_recall"
"""Of each round, the recall of the class that is recognised worst; files of earlier versions lack it."""

TROUBLES = ("uploads", "refused", "missing", "rounds_without_update")
"""Also of each round, in runs in which uploads or rounds were lost."""


@dataclass(frozen=True)
class Result:
    """A finished cell, read back."""

    rounds: int
    seed: int
    settings: Plain
    environment: Plain
    curves: dict[str, list[Any]]

    def measure(self, name: str) -> float:
        """One of `OF_ACCURACY`; of bytes, those of one client; of the worst class, the mean over the second half; else
        the mean of the curve of that name."""
        if name in OF_ACCURACY:
            return float(OF_ACCURACY[name](self.curves["accuracy"]))
        if name == WORST_RECALL:
            values = self.curves[name]
            return fmean(value for value in values[len(values) // 2 :] if value is not None)
        if name in ("bytes_up", "bytes_down"):  # the number of active clients differs from round to round
            return float(sum(self.curves[name]) / sum(self.curves["active"]))
        return fmean(value for value in self.curves[name] if value is not None)

    @property
    def of_cloud_model(self) -> Result | None:
        """The same run by the cloud model, for a method whose clients' mean is scored and whose cloud model is sent.

        Of the cloud model only the accuracy is known.
        """
        if CLOUD not in self.curves:
            return None
        known = {name: values for name, values in self.curves.items() if name not in ("loss", WORST_RECALL)}
        return replace(self, curves={**known, "accuracy": self.curves[CLOUD]})

    @property
    def tally(self) -> Tally:
        """What of it was refused; runs in which nothing was do not say how many uploads there were."""
        return Tally(self.rounds, *(sum(self.curves.get(name, [])) for name in TROUBLES))

    def cut(self, rounds: int) -> Result:
        """Its first rounds: a longer run is compared with others over the same number."""
        return replace(self, rounds=rounds, curves={name: values[:rounds] for name, values in self.curves.items()})


def file_of(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.key}.json"


def keep(cell: Cell, record: Record, folder: Path) -> Path:
    """Write the result of a finished run."""
    path = file_of(cell, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, cell.settings, record)
    return path


def write(path: Path, settings: Settings, record: Record) -> None:
    """What is kept of a run, whole or not at all."""
    lines = record.rounds()
    result = {
        "rounds": len(lines),
        "seed": settings.seed,
        "settings": settings.plain() | {"rounds": len(lines), "workers": 0, "engine": "local"},
        "environment": record.environment(),
        "curves": curves_of(lines),
    }
    write_whole(path, seal(_compact(result)))


def curves_of(lines: Sequence[RoundLine]) -> dict[str, list[Any]]:
    """What is kept of a run's rounds."""
    rows = [line.plain() for line in lines]
    curves = {name: [row[name] for row in rows] for name in CURVES if name in rows[0]}
    curves["active"] = [len(line.active) for line in lines]
    curves[WORST_RECALL] = [
        min((recall for recall in line.recall if recall is not None), default=None) for line in lines
    ]
    if str(tally(lines)):
        tallies = [tally([line]) for line in lines]
        curves |= {name: [getattr(of_round, name) for of_round in tallies] for name in TROUBLES}
    return curves


def _compact(result: Plain) -> str:
    """Readable JSON, one line per curve."""
    curves = result.pop("curves")
    head = json.dumps(result, indent=1)[:-2]
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in curves.items())
    return f'{head},\n "curves": {{\n{body}\n }}\n}}\n'


def read(cell: Cell, folder: Path) -> Result | None:
    """The result of a cell, if there is one."""
    path = file_of(cell, folder)
    if not path.exists():
        return None
    try:
        return read_file(path)
    except ValueError as error:
        raise UserError(f"{path} is no result of a cell ({error}); delete it, and run the cell again.") from None


def read_file(path: Path) -> Result:
    """A result that was kept. Raises `ValueError` for anything else."""
    try:
        result = Result(**unseal(path.read_bytes())[0])
        if not all(isinstance(part, dict) for part in (result.settings, result.environment, result.curves)):
            raise ValueError("its settings, environment or curves are no tables")
        if any(len(values) != result.rounds for values in result.curves.values()) or "accuracy" not in result.curves:
            raise ValueError("a curve is missing, or its length is not the number of rounds")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    return replace(result, settings=complete(result.settings))


def seeds_kept(scale: str, folder: Path) -> list[int]:
    """All seeds that some cell of this scale was run with."""
    matches = (re.search(r"-seed(\d+)-", path.name) for path in (folder / scale).glob("*.json"))
    return sorted({int(match[1]) for match in matches if match})


def finished(cell: Cell, folder: Path) -> bool:
    """Is there a result with at least as many rounds as asked for?"""
    result = read(cell, folder)
    return result is not None and result.rounds >= cell.settings.rounds


def missing(cells: Iterable[Cell], folder: Path) -> list[Cell]:
    """Cells to run, each run once even if several items show it."""
    unique = {cell.key: cell for cell in cells}
    return [cell for cell in unique.values() if not finished(cell, folder)]
