"""How is an image file read that anybody may have made? By readers of pixels only, and not if it is far too large."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    with warnings.catch_warnings(), opened(path) as file:
        warnings.simplefilter("ignore")  # what is wrong with a file is said by an error
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(file, formats=FORMATS) as image:
            yield image


def read_image(path: Path, shape: tuple[int, ...] | None = None) -> npt.NDArray[np.uint8]:
    """An image file as (height, width, channels) bytes, brought to a model's (channels, height, width) if given."""
    try:
        with open_image(path) as file:
            image = file
            grey = shape[0] == 1 if shape else image.mode in ("1", "L", "I", "I;16")
            image = image.convert("L" if grey else "RGB")
            if shape and image.size != (shape[2], shape[1]):
                image = image.resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
            pixels = np.asarray(image, dtype=np.uint8)
    except Exception as error:  # Pillow's readers fail in many ways
        raise UserError(f"{path} cannot be read as an image ({error or type(error).__name__}).") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file that could be read."""
    with open_image(path) as image:
        return image.size
