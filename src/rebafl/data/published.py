"""How are archives decoded that are known by a checksum of the archive? Read where they are, nothing unpickled.

A reader raises `FileNotFoundError` where its files are not there, and `ValueError` where they are broken.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import ascii_uppercase

import numpy as np
import numpy.typing as npt

from ..base.reading import opened, read_bytes
from .arrays import Arrays
from .formats import CIFAR_IMAGE, CIFAR_PLANES, parse_idx
from .unpacked import FREE

Read = Callable[[Path], Arrays]
DIGITS_FILE, LETTER_FILE = "digits.csv.gz", "letter.dat"
EMNIST_MEMBER = "gzip/emnist-balanced-{part}-{what}-ubyte.gz"
MATRIX, COMPRESSED = 14, 15  # types of elements in a MATLAB file
MAT_NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}


def checked(names: Mapping[str, str], read: Read) -> Read:
    """A reader that looks at the SHA-256 of the archives first."""

    def read_checked(folder: Path) -> Arrays:
        for name, sha256 in names.items():
            with opened(folder / name) as file:
                total = hashlib.sha256()
                while block := file.read(1 << 20):
                    total.update(block)
            if total.hexdigest() != sha256:
                raise ValueError(f"{folder / name} is another file than was published: its SHA-256 differs")
        try:
            return read(folder)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, KeyError, zlib.error, struct.error) as error:
            raise ValueError(f"{folder}: {error}") from error

    return read_checked


def read_cifar_100(folder: Path) -> Arrays:
    """Records of a coarse and a fine label and three colour planes; the fine labels are the classes."""
    arrays: Arrays = {}
    with opened(folder / "cifar-100-binary.tar.gz") as file, tarfile.open(fileobj=file) as tar:
        for part in ("train", "test"):
            member = tar.extractfile(f"cifar-100-binary/{part}.bin")
            data = np.frombuffer(member.read(FREE) if member else b"", np.uint8)
            if not data.size or data.size % (2 + CIFAR_IMAGE):
                raise ValueError(f"{part}.bin is cut short")
            records = data.reshape(-1, 2 + CIFAR_IMAGE)
            images = records[:, 2:].reshape(-1, *CIFAR_PLANES).transpose(0, 2, 3, 1)
            arrays |= {f"x_{part}": np.ascontiguousarray(images), f"y_{part}": records[:, 1].copy()}
    return arrays


def read_emnist(folder: Path) -> Arrays:
    """The balanced part. EMNIST stores its images column by column."""
    arrays: Arrays = {}
    with opened(folder / "gzip.zip") as file, zipfile.ZipFile(file) as archive:
        for part in ("train", "test"):
            for key, what in (("x", "images-idx3"), ("y", "labels-idx1")):
                name = EMNIST_MEMBER.format(part=part, what=what)
                with archive.open(name) as packed, gzip.open(packed) as plain:
                    arrays[f"{key}_{part}"] = parse_idx(plain.read(FREE), name)
            arrays[f"x_{part}"] = np.ascontiguousarray(arrays[f"x_{part}"].transpose(0, 2, 1)[..., None])
    return arrays


def read_svhn(folder: Path) -> Arrays:
    """Two MATLAB files with images X and labels y; the digit 0 has the label 10."""
    arrays: Arrays = {}
    for part in ("train", "test"):
        held = read_mat(read_bytes(folder / f"{part}_32x32.mat"))
        images = held["X"].transpose(3, 0, 1, 2)
        arrays |= {f"x_{part}": np.ascontiguousarray(images), f"y_{part}": (held["y"].ravel() % 10).astype(np.uint8)}
    return arrays


def read_mat(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """The matrices of plain numbers in a MATLAB file of version 5, by name."""
    if len(data) < 128 or data[126:128] != b"IM":
        raise ValueError("it is no MATLAB file of version 5")
    found = {}
    for kind, element in _elements(data[128:]):
        if kind == COMPRESSED:
            kind, element = next(_elements(zlib.decompressobj().decompress(element, FREE)))
        if kind != MATRIX:
            raise ValueError("it holds something else than matrices")
        _, (_, sides), (_, name), (code, numbers) = list(_elements(element))[:4]
        if code not in MAT_NUMBERS:
            raise ValueError(f"it holds {name.decode('latin-1')} in no plain numbers")
        shape = np.frombuffer(sides, "<i4")
        found[name.decode("latin-1")] = np.frombuffer(numbers, MAT_NUMBERS[code]).reshape(shape, order="F")
    return found


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and content of each element; small ones stand in four of the eight bytes of their tag."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
            continue
        if at + 8 + size > len(data):
            raise ValueError("it is cut short")
        yield kind, data[at + 8 : at + 8 + size]
        at += 8 + size + (-size % 8 if kind != COMPRESSED else 0)


def read_digits(folder: Path) -> Arrays:
    """scikit-learn's table of 64 pixels from 0 to 16 and a label a row, as bytes from 0 to 255."""
    rows = np.array([line.split(",") for line in gzip.decompress(_file(folder, DIGITS_FILE)).decode().split()])
    numbers = rows.astype(np.float64).astype(np.int64)
    images = ((numbers[:, :64] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    return every_fifth(images, numbers[:, 64].astype(np.uint8))


def read_letter(folder: Path) -> Arrays:
    """16 whole numbers and a letter a row; sorted, since sources have the rows in different orders."""
    text = _file(folder, LETTER_FILE).decode()
    rows = sorted(line.split(",") for line in text.split() if line and not line.startswith("@"))
    try:
        labels = np.array([ascii_uppercase.index(row[16]) for row in rows], dtype=np.uint8)
        numbers = np.array([row[:16] for row in rows]).astype(np.float32)
    except IndexError as error:
        raise ValueError(f"{folder}: a row has too few columns") from error
    return every_fifth(numbers, labels)


def every_fifth(x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> Arrays:
    """For data that come in one part: every fifth sample is for the test."""
    test = np.arange(len(y)) % 5 == 4
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def _file(folder: Path, name: str) -> bytes:
    """A file in a folder, or in a wheel there; nothing of the wheel is installed or run."""
    if (folder / name).exists():
        return read_bytes(folder / name)
    for wheel in sorted(folder.glob("*.whl")):
        with opened(wheel) as file, zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(f"/{name}") and entry.file_size <= FREE:
                    return archive.read(entry)
    raise FileNotFoundError(f"there is no {name} in {folder}")
