"""What do clients learn from? A name or a path becomes a data set in memory; sources, checksums, formats end here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..base.config import choices
from ..base.errors import UserError, exists
from .arrays import Data, Inputs
from .catalog import KNOWN, load_known, whereabouts
from .own import from_torch, image_size, load_folder, load_npz, read_image

__all__ = [
    "KNOWN",
    "Data",
    "Inputs",
    "check_name",
    "from_torch",
    "image_size",
    "load",
    "read_image",
    "settings_for",
    "whereabouts",
]


def load(dataset: str, say: Callable[[str], None] = print) -> Data:
    """A known data set by name, or one's own by path. `say` hears of anything that is fetched."""
    check_name(dataset)
    if dataset in KNOWN:
        return load_known(KNOWN[dataset], say)
    path = Path(dataset)
    return load_folder(path) if path.is_dir() else load_npz(path)


def check_name(dataset: str) -> None:
    if dataset not in KNOWN and not (dataset and exists(Path(dataset))):
        raise UserError(
            f"There is no data set {dataset!r}{choices(dataset, KNOWN)}; or give the path of an .npz "
            "or of a folder of class folders."
        )


def settings_for(dataset: str) -> Mapping[str, Any]:
    """The paper's settings for this data set where they differ from the general ones."""
    return KNOWN[dataset].settings if dataset in KNOWN else {}
