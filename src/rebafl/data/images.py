"""How is an image file read that anybody may have made? By readers of pixels only, and not if it is far too large."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..base.errors import UserError
from ..base.reading import opened

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Whatever a file is called, Pillow would try every format it knows, and hand PostScript to a program that runs it."""


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """An image of a known format, not decoded yet. Pillow's warning of a huge one is taken for an error."""
    with opened(path) as file, _opened(file) as image:
        yield image


@contextmanager
def _opened(file: IO[bytes]) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong with a file is said by an error
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(file, formats=FORMATS) as image:
            yield image


def read_image(
    path: Path, shape: tuple[int, ...] | None = None, side: int = 0, content: bytes | None = None
) -> npt.NDArray[np.uint8]:
    """An image file as (height, width, channels) bytes, brought to a model's (channels, height, width) if given.

    `side` makes it a square of so many pixels a side instead; `content` is the file's, if it is in memory.
    """
    try:
        with open_image(path) if content is None else _opened(BytesIO(content)) as file:
            image = file
            grey = shape[0] == 1 if shape else image.mode in ("1", "L", "I", "I;16")
            image = image.convert("L" if grey else "RGB")
            size = (shape[2], shape[1]) if shape else (side, side) if side else image.size
            if image.size != size:
                image = image.resize(size, Image.Resampling.BILINEAR)
            pixels = np.asarray(image, dtype=np.uint8)
    except Exception as error:  # Pillow's readers fail in many ways
        raise UserError(f"{path} cannot be read as an image ({error or type(error).__name__}).") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file that could be read."""
    with open_image(path) as image:
        return image.size


def resized(images: npt.NDArray[np.generic], side: int) -> npt.NDArray[np.generic]:
    """Images (n, height, width, channels) as squares of so many pixels a side, in their own kind of numbers."""
    count, _, _, channels = images.shape
    pixels = images.dtype == np.uint8
    squares = np.empty((count, side, side, channels), dtype=np.uint8 if pixels else np.float32)
    for image, square in zip(images, squares, strict=True):
        for channel in range(channels):
            plane = Image.fromarray(np.ascontiguousarray(image[..., channel], dtype=squares.dtype))
            square[..., channel] = np.asarray(plane.resize((side, side), Image.Resampling.BILINEAR))
    return squares
