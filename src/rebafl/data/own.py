"""How do a user's own data come in? From an `.npz`, a folder of class folders, or any torch Dataset."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..base.errors import UserError
from .arrays import NAMES, Arrays, Data, from_arrays

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}


def load_npz(path: Path) -> Data:
    """An `.npz` with `x_train y_train x_test y_test` and, if wanted, the class names in `classes`."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays: Arrays = {name: file[name] for name in file.files if name in NAMES}
            names = [str(name) for name in file["classes"]] if "classes" in file.files else None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError, MemoryError) as error:
        raise UserError(f"{path} cannot be read as an .npz of plain arrays ({error}).") from None
    return from_arrays(str(path), arrays, tuple(names) if names else None)


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
        if file.suffix.lower() in IMAGES
    ]
    if empty := set(range(len(classes))) - {label for _, label in files}:
        raise UserError(f"{path / classes[min(empty)]} holds no images; fill it or remove it.")
    images = [read_image(file) for file, _ in files]
    for (file, _), image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            raise UserError(
                f"{file} has shape {image.shape}, {files[0][0].name} has {images[0].shape}; make all images alike."
            )
    return np.stack(images), np.array([label for _, label in files], dtype=np.int64)


def read_image(path: Path, shape: tuple[int, ...] | None = None) -> npt.NDArray[np.uint8]:
    """An image file as (height, width, channels) bytes, brought to a model's (channels, height, width) if given."""
    try:
        with Image.open(path) as file:
            image: Image.Image = file
            grey = shape[0] == 1 if shape else image.mode in ("1", "L", "I", "I;16")
            image = image.convert("L" if grey else "RGB")
            if shape and image.size != (shape[2], shape[1]):
                image = image.resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
            pixels = np.asarray(image, dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"{path} cannot be read as an image ({error}).") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file that could be read."""
    with Image.open(path) as image:
        return image.size


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
