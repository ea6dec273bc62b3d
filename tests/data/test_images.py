"""Image files that are none, or other than their name says: refused, and nobody else is asked to read them."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from rebafl import data as datasets
from rebafl.base.errors import UserError
from rebafl.data.images import FORMATS, SUFFIXES, open_image

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(hit) (w) file\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.eps", "a"])
def test_postscript_is_not_handed_to_ghostscript(tmp_path, monkeypatch, name):
    asked = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *words, **more: asked.append(words))
    (tmp_path / name).write_bytes(POSTSCRIPT)
    with pytest.raises(UserError, match="cannot be read as an image"):
        datasets.read_image(tmp_path / name)
    assert not asked
    with Image.open(tmp_path / name) as image:  # or this test would prove nothing
        assert image.format == "EPS"


@pytest.mark.parametrize("format", FORMATS)
def test_the_formats_that_are_read(tmp_path, format):
    pixels = np.arange(12 * 9 * 3, dtype=np.uint8).reshape(12, 9, 3)
    Image.fromarray(pixels).save(tmp_path / "image", format=format)
    read = datasets.read_image(tmp_path / "image")
    assert read.shape == pixels.shape
    assert datasets.image_size(tmp_path / "image") == (9, 12)
    if format not in ("JPEG", "GIF", "WEBP"):  # these lose some
        assert np.array_equal(read, pixels)


def test_every_suffix_belongs_to_a_format_that_is_read():
    Image.init()
    assert {Image.EXTENSION[suffix] for suffix in SUFFIXES} == set(FORMATS)


def png(width, height):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 10_000), (2**31 - 1, 2**31 - 1), (0, 5), (5, 0)])
def test_sizes_that_no_image_has(tmp_path, size):
    (tmp_path / "a.png").write_bytes(png(*size))
    with pytest.raises(UserError, match="cannot be read as an image"):
        datasets.read_image(tmp_path / "a.png")


def test_a_pipe_among_the_images_of_a_folder(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "0.png")
    os.mkfifo(tmp_path / "dog" / "1.png")
    with pytest.raises(UserError, match=r"1\.png cannot be read"):
        datasets.load(str(tmp_path))


def test_a_folder_that_unpacks_to_too_much(tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("L", (2000, 2000)).save(tmp_path / name / f"{k}.png")
    assert datasets.load(str(tmp_path)).shape == (1, 2000, 2000)
    monkeypatch.setattr("rebafl.data.unpacked.FREE", 2**24)
    read = []

    def noted(path, **_):
        read.append(path)
        return datasets.read_image(path)

    monkeypatch.setattr("rebafl.data.own.read_image", noted)
    with pytest.raises(UserError, match="more than 100 times as many"):
        datasets.load(str(tmp_path))
    assert len(read) == 1


def test_an_image_that_is_only_opened_is_not_decoded(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[:-20])
    with open_image(tmp_path / "a.png") as image:
        assert image.size == (8, 8)
