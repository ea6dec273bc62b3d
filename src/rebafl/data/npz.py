"""How are arrays read from an `.npz` that anybody may have made? By what its entries really hold, nothing unpickled.

Nothing is unpacked, and no memory is taken, on the word of a header: what the archive's directory says bounds what is
unpacked, and what an array's header says must agree with it.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy.typing as npt
from numpy.lib import format as npy

from ..base.errors import UserError
from ..base.reading import opened
from .unpacked import check_unpacked

PLAIN = "biufUS"  # kinds of numbers and texts
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
ENDING = ".npy"


def read_npz(path: Path, wanted: Collection[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """The arrays that are there, of those wanted or all; one sentence for whatever is no `.npz` of plain arrays."""
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            entries = _entries(archive, wanted)
            size = file.seek(0, 2)
            check_unpacked(path, size, sum(entry.file_size for entry in entries.values()))
            return {name: _array(archive, entry) for name, entry in entries.items()}
    except UserError:
        raise
    except Exception as error:  # zip, zlib and numpy's headers, which are read as Python, fail in many ways
        raise UserError(f"{path} cannot be read as an .npz of plain arrays ({_reason(error)}).") from None


def _entries(archive: zipfile.ZipFile, wanted: Collection[str] | None) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(ENDING)
        if wanted is not None and name not in wanted:
            continue
        if name in found:
            raise ValueError(f"it holds {name} twice")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
            raise ValueError(f"{name} is encrypted or packed in a way that numpy does not write")
        found[name] = entry
    return found


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """The array of an entry, if the entry holds just that."""
    with archive.open(entry) as file:
        version = npy.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"{entry.filename} is of an unknown version of the format")
        shape, _, dtype = HEADERS[version](file)
        if dtype.kind not in PLAIN or any(side < 0 for side in shape):
            raise ValueError(f"{entry.filename} holds {dtype} of shape {shape}, no plain numbers or texts")
        held, said = entry.file_size - file.tell(), math.prod(map(int, shape)) * dtype.itemsize
        if held != said:
            raise ValueError(f"{entry.filename} holds {held} bytes where its header says {said}")
    with archive.open(entry) as file:
        array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
