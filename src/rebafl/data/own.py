"""How do a user's own data come in? From an `.npz`, a folder of class folders, or any torch Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..base.errors import UserError
from ..base.words import one_line
from .arrays import MOST_CLASSES, NAMES, Arrays, Data, from_arrays
from .images import SUFFIXES, read_image
from .npz import read_npz
from .unpacked import check_unpacked

CLASSES, CLIENTS = "classes", "client_train"


def load_npz(path: Path, column: str = "") -> Data:
    """An `.npz` with `x_train y_train x_test y_test` and, if wanted, the class names in `classes`.

    Whose each training sample is may be said by an array `client_train`, or another whose name is given.
    """
    arrays: Arrays = read_npz(path, (*NAMES, CLASSES, column or CLIENTS))
    clients = arrays.pop(column or CLIENTS, None)
    if column and clients is None:
        raise UserError(f"{path} has no array {column}, which partition.column names.")
    names = arrays.pop(CLASSES, None)
    if names is not None and (names.ndim != 1 or len(names) > MOST_CLASSES):
        raise UserError(f"{path}: {CLASSES} must be a list of up to {MOST_CLASSES} names, not of shape {names.shape}.")
    return from_arrays(str(path), arrays, None if names is None else tuple(map(str, names)), clients=clients)


def load_folder(path: Path, side: int = 0) -> Data:
    """`train/CLASS/*.png` and `test/CLASS/*.png`; without such a split every fifth image is for the test.

    `clients/CLIENT/CLASS/*.png` instead of `train` says whose each image is. `side`: the size that all are brought to.
    """
    train, test, clients = path / "train", path / "test", path / "clients"
    if clients.is_dir():
        return _load_clients(path, side)
    if train.is_dir() and test.is_dir():
        classes = _class_folders(train)
        _check_test(test, classes, train)
        parts = [_read(train, classes, side), _read(test, classes, side)]
    else:
        classes = _class_folders(path)
        x, y = _read(path, classes, side)
        held = np.arange(len(y)) % 5 == 4
        parts = [(x[~held], y[~held]), (x[held], y[held])]
    arrays: Arrays = dict(zip(NAMES, (array for part in parts for array in part), strict=True))
    return from_arrays(str(path), arrays, tuple(classes), layout="channels-last")


def _load_clients(path: Path, side: int) -> Data:
    """Folders of clients; without a `test` folder every fifth image of each client is for the test."""
    folders = _folders(path / "clients")
    if not folders:
        raise UserError(f"{path / 'clients'} must hold a folder for each client, with class folders in it.")
    classes = sorted({name for folder in folders for name in _folders(path / "clients" / folder)})
    parts = [_read(path / "clients" / folder, classes, side, all_classes=False) for folder in folders]
    if unlike := {part[0].shape[1:] for part in parts if part[0].shape[1:] != parts[0][0].shape[1:]}:
        raise UserError(
            f"{path}: clients have images of shape {parts[0][0].shape[1:]} and {min(unlike)}; set resize=SIDE."
        )
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    owners = np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])
    within = np.concatenate([np.arange(len(part[1])) for part in parts])
    if (path / "test").is_dir():
        _check_test(path / "test", classes, path / "clients")
        held, (x_test, y_test) = np.zeros(len(y), dtype=bool), _read(path / "test", classes, side)
    else:
        held = within % 5 == 4
        x_test, y_test = x[held], y[held]
    arrays: Arrays = {"x_train": x[~held], "y_train": y[~held], "x_test": x_test, "y_test": y_test}
    return from_arrays(str(path), arrays, tuple(classes), clients=owners[~held], layout="channels-last")


def _check_test(test: Path, classes: Sequence[str], train: Path) -> None:
    if only_in_test := set(_class_folders(test)) - set(classes):
        raise UserError(f"{test} has classes that {train} has not: {', '.join(sorted(only_in_test))}.")


def _class_folders(path: Path) -> list[str]:
    names = _folders(path)
    if len(names) < 2:
        raise UserError(f"{path} must hold at least two folders of images, one for each class.")
    return names


def _folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _read(
    path: Path, classes: Sequence[str], side: int, all_classes: bool = True
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((path / name).glob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise UserError(f"{path} holds no images; fill it or remove it.")
    if all_classes and (empty := set(range(len(classes))) - {label for _, label in files}):
        raise UserError(f"{path / classes[min(empty)]} holds no images; fill it or remove it.")
    first = read_image(files[0][0], side=side)
    check_unpacked(path, sum(file.stat().st_size for file, _ in files), len(files) * first.nbytes)
    images = [first]
    for file, _ in files[1:]:
        images.append(image := read_image(file, side=side))
        if image.shape != first.shape:
            raise UserError(
                f"{file} has shape {image.shape}, {files[0][0].name} has {first.shape}; make all images alike, or set "
                "resize=SIDE (a mixture of grey and colour stays a mixture)."
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
    clients: Sequence[int | str] | None = None,
) -> Data:
    """Two torch Datasets of (input, label) pairs, each read once; images as (channels, height, width).

    `clients` says whose each training sample is, by a number or a name.
    """
    arrays: Arrays = {}
    for part, dataset in (("train", train), ("test", test)):
        pairs = [dataset[index] for index in range(len(dataset))]
        if not pairs:
            raise UserError(f"The {part} data set is empty.")
        try:
            x = torch.stack([torch.as_tensor(x) for x, _ in pairs]).numpy()
            arrays[f"y_{part}"] = np.array([int(y) for _, y in pairs])
        except (TypeError, ValueError, RuntimeError) as error:
            must = "must hold pairs of a tensor, all of one shape, and a class number"
            raise UserError(f"The {part} data set {must} ({one_line(error)}).") from None
        arrays[f"x_{part}"] = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    owners = None if clients is None else np.asarray(clients)
    return from_arrays(name, arrays, tuple(classes) if classes else None, clients=owners, layout="channels-last")
