"""Do the stored reconstructions give the numbers that an audit printed? They are computed again from the files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ..base.errors import UserError
from ..base.words import Say
from ..data import Data, load
from ..training.resources import one_thread
from .inversion.album import load_album
from .inversion.scores import scored
from .views import joined


def recomputed(folder: Path, dataset: str = "", say: Say = print, data: Data | None = None) -> int:
    """How many rows were computed again; the first number that differs is an error."""
    part = _part(folder / "audit.json")
    album = load_album(folder / str(part["file"]))
    if data is None:
        data = load(dataset or str(part["data"]), say)
        data = joined(data) if part["joined"] else data
    if album.digest != data.digest:
        raise UserError(
            f"{folder} was made of other data than {data.name} holds now; restore the data, or name --data."
        )
    with one_thread():
        again = json.loads(json.dumps(scored(album, data)))
    if len(again) != len(part["rows"]):
        raise UserError(
            f"{folder}: audit.json has {len(part['rows'])} rows about images, the stored ones {len(again)}."
        )
    for row, stored in zip(again, part["rows"], strict=True):
        for name, value in row.items():
            if not _same(value, stored.get(name)):
                what = ", ".join(f"{key} {row[key]}" for key in ("attack", "attacker", "depth", "round", "what", "k"))
                raise UserError(
                    f"{folder}: {name} is {stored.get(name)} in audit.json, but {value} from the images ({what})."
                )
    return len(again)


def _part(path: Path) -> dict[str, Any]:
    try:
        part: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8"))["inversion"]
    except OSError:
        raise UserError(f"{path} cannot be read; give the folder that rebafl privacy audit wrote.") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not an audit with reconstructed images; audit again.") from None
    if not part or not part.get("file"):
        raise UserError(f"{path} has no reconstructed images; audit with --pictures.")
    return part


def _same(value: Any, stored: Any) -> bool:
    """Equal but for the last bits, which other processors may compute differently; no number is null."""
    if isinstance(value, dict):
        return isinstance(stored, dict) and all(_same(item, stored.get(name)) for name, item in value.items())
    if isinstance(value, list):
        return isinstance(stored, list) and len(value) == len(stored) and all(map(_same, value, stored))
    if isinstance(value, float):
        if stored is None or math.isnan(value):
            return math.isnan(value) and (stored is None or math.isnan(stored))
        return isinstance(stored, float | int) and abs(value - stored) < 1e-6
    return bool(value == stored)
