"""What do clients learn from? A name or a path becomes a data set in memory; sources, checksums, formats end here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import UserError, exists
from ..base.kinds import explained
from .arrays import Data, Inputs, from_arrays
from .catalog import KNOWN, load_known, whereabouts
from .images import image_size, read_image
from .own import from_torch, load_folder, load_npz

__all__ = [
    "KNOWN",
    "Data",
    "Inputs",
    "check_name",
    "from_arrays",
    "from_torch",
    "image_size",
    "load",
    "own_function",
    "read_image",
    "whereabouts",
]


def load(dataset: str, say: Callable[[str], None] = print) -> Data:
    """A known data set by name, or one's own by path or by the function that makes it.

    `say` hears of anything that is fetched.
    """
    if dataset in KNOWN:
        return load_known(KNOWN[dataset], say)
    if (function := own_function(dataset)) is not None:
        return _made(dataset, function)
    path = Path(dataset)
    return load_folder(path) if path.is_dir() else load_npz(path)


def own_function(dataset: str) -> Callable[[], Any] | None:
    """The user's function behind a data set, None if it is known by name or a path; what is neither is refused."""
    if dataset in KNOWN or (dataset and exists(Path(dataset)) and dataset not in KNOWN.installed()):
        return None
    found: Callable[[], Any] = KNOWN.imported(dataset)
    return found


def check_name(dataset: str) -> None:
    """Refuse what no data set can be found by."""
    own_function(dataset)


def _made(dataset: str, function: Callable[[], Any]) -> Data:
    with explained(f"dataset: {dataset}"):
        data = function()
    if not isinstance(data, Data):
        raise UserError(
            f"dataset: {dataset} gave back a {type(data).__name__} where rebafl.Data are needed; "
            "make them with rebafl.from_arrays or rebafl.from_torch."
        )
    return replace(data, name=dataset)  # what the run calls them
