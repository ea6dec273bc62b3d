"""An `.npz` that was made to break its reader: one sentence, and no memory taken on its word."""

import io
import resource
import struct
import zipfile
from typing import Any

import numpy as np
import pytest

from rebafl import data as datasets
from rebafl.base.errors import UserError
from rebafl.data import unpacked
from rebafl.data.npz import read_npz
from rebafl.data.unpacked import check_unpacked
from support.archives import idx_arrays


def npy(array):
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def archive(path, compression=zipfile.ZIP_DEFLATED, **entries):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)
    return path


def header(shape, descr="|u1"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def refusal(path):
    with pytest.raises(UserError, match=r"cannot be read|unpacks to") as error:
        datasets.load(str(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_numpy_writes_is_read_as_numpy_reads_it(tmp_path):
    arrays: dict[str, Any] = {
        "a": np.arange(12.0).reshape(3, 4).T,  # in the other order
        "b": np.array(["ein", "zwei"]),
        "c": np.array(5),
        "d": np.zeros((0, 3), dtype=">i2"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "d.npz", **arrays)
        read = read_npz(tmp_path / "d.npz")
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            assert np.array_equal(read[name], array)
    assert read_npz(tmp_path / "d.npz", ["a", "z"]).keys() == {"a"}


def test_damaged_compressed_bytes(tmp_path):
    path = archive(tmp_path / "d.npz", x_train=npy(np.arange(10_000) % 251))
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(30)
    path.write_bytes(data)
    assert refusal(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_numpy_does_not_write(tmp_path, compression):
    assert "packed in a way" in refusal(archive(tmp_path / "d.npz", compression, x_train=npy(np.zeros(3))))


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (10, 99)])
def test_encrypted_members_and_unknown_compression(tmp_path, offset, value):
    path = archive(tmp_path / "d.npz", x_train=npy(np.zeros(3)))
    data = bytearray(path.read_bytes())
    start = data.rindex(b"PK\x01\x02")
    data[start + offset] = value
    path.write_bytes(data)
    assert refusal(path)


def test_an_array_that_is_there_twice(tmp_path):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as file:
        file.writestr("x_train.npy", npy(np.zeros(3)))
        file.writestr("x_train", npy(np.ones(3)))
    assert "twice" in refusal(tmp_path / "d.npz")


@pytest.mark.parametrize(
    "content",
    [
        header((2**40, 2**40)), header((10**30,)), header((-1, 5)), header((3,)), header((3,)) + bytes(4),
        header((2,), "|O"), header((2,), "<M8[s]") + bytes(16), b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\xff\xff", b"",
        header("(1, )" + ")" * 3), header("__import__('os')"), header("(1,) * 999"), header("[" * 5000),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path, content):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refusal(archive(tmp_path / "d.npz", x_train=content))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_small_file_that_unpacks_to_gigabytes(tmp_path):
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("x_train.npy", "w") as entry:
        entry.write(header((2**29,)))
        for _ in range(2**9):
            entry.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "more than 100 times as many" in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_an_archive_that_says_it_is_small(tmp_path):
    """The directory's word is what is unpacked at the most; an array that needs more is refused."""
    path = archive(tmp_path / "d.npz", x_train=header((2**20,)) + bytes(2**20))
    data = bytearray(path.read_bytes())
    start = data.rindex(b"PK\x01\x02")
    data[start + 24 : start + 28] = struct.pack("<I", 2000)
    path.write_bytes(data)
    assert refusal(path)


def test_what_fits_may_be_as_large_as_the_memory(monkeypatch):
    check_unpacked("d.npz", 2**30, 2**30)
    check_unpacked("d.npz", 1000, unpacked.FREE)
    monkeypatch.setattr(unpacked, "memory", lambda: 2**29)
    with pytest.raises(UserError, match="this machine has"):
        check_unpacked("d.npz", 2**30, 2**30)


@pytest.mark.parametrize("shape", [(6, 0, 28), (6, 28, 0), (6, 0), (6, 3, 0, 5)])
def test_samples_without_content(tmp_path, shape):
    x = np.zeros(shape, dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(6), x_test=x, y_test=np.arange(6))
    with pytest.raises(UserError, match="must hold samples of numbers"):
        datasets.load(str(tmp_path / "d.npz"))


def test_more_features_than_can_be_normalised(tmp_path):
    x = np.zeros((2, 2**20 + 1), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(2), x_test=x, y_test=np.arange(2))
    with pytest.raises(UserError, match="features a sample"):
        datasets.load(str(tmp_path / "d.npz"))


@pytest.mark.parametrize("names", [np.array(["cat"] * 10), np.array([b"a", b"a", *b"01234567"])])
def test_class_names_that_are_alike_are_not_merged(tmp_path, names):
    np.savez(tmp_path / "d.npz", **idx_arrays(), classes=names)
    with pytest.raises(UserError, match=r"more than one class called .*; give each another name\.$"):
        datasets.load(str(tmp_path / "d.npz"))


@pytest.mark.parametrize("names", [np.array([["a"] * 10]), np.arange(10_001), np.array("a")])
def test_class_names_that_are_no_list(tmp_path, names):
    np.savez(tmp_path / "d.npz", **idx_arrays(), classes=names)
    with pytest.raises(UserError, match="must be a list of up to"):
        datasets.load(str(tmp_path / "d.npz"))
