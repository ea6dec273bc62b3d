"""How do a user's own data come in? From an `.npz`, a folder of class folders, or any torch Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..base.errors import UserError
from .arrays import MOST_CLASSES, NAMES, Arrays, Data, from_arrays
from .images import SUFFIXES, read_image
from .npz import read_npz
from .unpacked import check_unpacked

CLASSES = "classes"


def load_npz(path: Path) -> Data:
    """An `.npz` with `x_train y_train x_test y_test` and, if wanted, the class names in `classes`."""
    arrays: Arrays = read_npz(path, (*NAMES, CLASSES))
    names = arrays.pop(CLASSES, None)
    if names is not None and (names.ndim != 1 or len(names) > MOST_CLASSES):
        raise UserError(f"{path}: {CLASSES} must be a list of up to {MOST_CLASSES} names, not of shape {names.shape}.")
    return from_arrays(str(path), arrays, None if names is None else tuple(map(str, names)))


def load_folder(path: Path) -> Data:
    """`train/CLASS/*.png` and `test/CLASS/*.png`; without such a split every fifth image is for the test."""
    train, test = path / "train", path / "test"
    if train.is_dir() and test.is_dir():
        classes = _class_folders(train)
        if only_in_test := set(_class_folders(test)) - set(classes):
            raise UserError(f"{test} has classes that {train} has not: {', '.join(sorted(only_in_test))}.")
        parts = [_read(train, classes), _read(test, classes)]
    else:
        classes = _class_folders(path)
        x, y = _read(path, classes)
        held = np.arange(len(y)) % 5 == 4
        parts = [(x[~held], y[~held]), (x[held], y[held])]
    arrays: Arrays = dict(zip(NAMES, (array for part in parts for array in part), strict=True))
    return from_arrays(str(path), arrays, tuple(classes))


def _class_folders(path: Path) -> list[str]:
    names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(names) < 2:
        raise UserError(f"{path} must hold at least two folders of images, one for each class.")
    return names


def _read(path: Path, classes: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((path / name).glob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if empty := set(range(len(classes))) - {label for _, label in files}:
        raise UserError(f"{path / classes[min(empty)]} holds no images; fill it or remove it.")
    first = read_image(files[0][0])
    check_unpacked(path, sum(file.stat().st_size for file, _ in files), len(files) * first.nbytes)
    images = [first]
    for file, _ in files[1:]:
        images.append(image := read_image(file))
        if image.shape != first.shape:
            raise UserError(
                f"{file} has shape {image.shape}, {files[0][0].name} has {first.shape}; make all images alike."
            )
    return np.stack(images), np.array([label for _, label in files], dtype=np.int64)


class MapDataset(Protocol):
    """A torch Dataset with a length: item k is a pair of an input and its label."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


def from_torch(
    train: MapDataset,
    test: MapDataset,
    classes: Sequence[str] | None = None,
    name: str = "python",
) -> Data:
    """Two torch Datasets of (input, label) pairs, each read once; images as (channels, height, width)."""
    arrays: Arrays = {}
    for part, dataset in (("train", train), ("test", test)):
        pairs = [dataset[index] for index in range(len(dataset))]
        if not pairs:
            raise UserError(f"The {part} data set is empty.")
        x = torch.stack([torch.as_tensor(x) for x, _ in pairs]).numpy()
        arrays[f"x_{part}"] = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        arrays[f"y_{part}"] = np.array([int(y) for _, y in pairs])
    return from_arrays(name, arrays, tuple(classes) if classes else None)
