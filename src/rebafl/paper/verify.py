"""Which results can be verified? Run directories, result files of `rebafl paper`, and some cells chosen by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.errors import UserError, exists
from ..base.rng import generator
from ..runs.settings import stored_settings
from ..runs.verify import RecordedRun, check_repeatable, read_directory
from .items import Item, Scale, cells
from .results import curves_of, file_of, read_file, seeds_kept


def read(path: Path) -> RecordedRun:
    """A run directory or a result file, if it can be run again here."""
    run = read_directory(path) if path.is_dir() else _read_result(path)
    check_repeatable(run)
    return run


def _read_result(path: Path) -> RecordedRun:
    try:
        result = read_file(path)
    except ValueError as error:
        raise UserError(f"{path} is neither a run directory nor a result file ({error}).") from None
    return RecordedRun(path, stored_settings(result.settings), result.environment, result.curves, curves_of)


def choose(items: Sequence[Item], scale: Scale, results: Path, count: int, seed: int) -> list[Path]:
    """The files of some finished cells; the same for the same seed."""
    seeds = seeds_kept(scale.name, results)
    kept = (file_of(cell, results) for item in items for cell in cells(item, scale, seeds, ours=True))
    paths = sorted({path for path in kept if exists(path)})
    if not paths:
        raise UserError(f"{results} holds no finished cell of these items at scale {scale.name}.")
    chosen = generator(seed, "verify").choice(len(paths), size=min(count, len(paths)), replace=False)
    return [paths[index] for index in sorted(chosen)]
