"""What do clients learn from? A name or a path becomes a data set in memory; sources, checksums, formats end here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..base.errors import UserError, exists
from ..base.kinds import explained
from .arrays import Data, Inputs, from_arrays
from .catalog import KNOWN, NOT_HERE, load_known, whereabouts
from .hub import HUB, check_hub, load_hub
from .images import image_size, read_image, resized
from .own import from_torch, load_folder, load_npz
from .unpacked import memory

__all__ = [
    "KNOWN",
    "Data",
    "Inputs",
    "check_name",
    "from_arrays",
    "from_torch",
    "image_size",
    "is_here",
    "load",
    "own_function",
    "read_image",
    "whereabouts",
    "with_side",
]


def load(dataset: str, say: Callable[[str], None] = print, side: int = 0, column: str = "") -> Data:
    """A known data set by name, or one's own by path or by the function that makes it.

    `say` hears of anything that is fetched. Images become squares of `side` pixels a side, unless that is 0. `column`
    is what says whose each training sample is, where that has a name.
    """
    return with_side(_loaded(dataset, say, side, column), side)


def _loaded(dataset: str, say: Callable[[str], None], side: int, column: str) -> Data:
    if dataset in KNOWN:
        return load_known(KNOWN[dataset], say)
    if dataset.startswith(HUB):
        return load_hub(dataset, say, side, column)
    if (function := own_function(dataset)) is not None:
        return _made(dataset, function)
    path = Path(dataset)
    return load_folder(path, side) if path.is_dir() else load_npz(path, column)


def is_here(dataset: str) -> bool:
    """Can it be read without fetching anything?"""
    return whereabouts(KNOWN[dataset]) != NOT_HERE if dataset in KNOWN else not dataset.startswith(HUB)


def with_side(data: Data, side: int) -> Data:
    """The same data with all images of one size, if that is wanted."""
    if not side or data.shape[1:] == (side, side):
        return data
    if len(data.shape) != 3:
        raise UserError(f"resize = {side}: {data.name} holds no images but {data.shape[0]} numbers a sample; leave it.")
    samples = len(data.y_train) + len(data.y_test)
    need = samples * side * side * data.shape[0] * data.x_train.element_size()
    if need > memory() // 2:
        raise UserError(f"resize = {side} makes {need:,} bytes of {data.name}, more than fit here; take a smaller one.")
    train, test = (torch.from_numpy(resized(x.numpy(), side)) for x in (data.x_train, data.x_test))
    inputs = replace(data.inputs, shape=(data.shape[0], side, side))
    return replace(data, inputs=inputs, x_train=train, x_test=test)


def own_function(dataset: str) -> Callable[[], Any] | None:
    """The user's function behind a data set, None if it is known by name or a path; what is neither is refused."""
    if dataset.startswith(HUB):
        check_hub(dataset)
        return None
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
