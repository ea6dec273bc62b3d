"""Every format gives the same bytes, and broken files are noticed."""

import gzip

import pytest

from rebafl.data import formats
from rebafl.data.arrays import digest
from support.archives import cifar_arrays, idx_arrays, write_binary, write_idx, write_python, write_tfjs


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(tmp_path, zipped):
    arrays = idx_arrays()
    write_idx(tmp_path / "f", arrays, zipped)
    assert digest(formats.read_idx(tmp_path / "f")) == digest(arrays)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (write_binary, formats.read_cifar_binary),
        (write_python, formats.read_cifar_python),
        (write_tfjs, formats.read_tfjs_cifar),
    ],
    ids=["binary", "pickle", "png"],
)
def test_every_cifar_format_gives_the_same_bytes(tmp_path, write, read):
    arrays = cifar_arrays()
    write(tmp_path / "f", arrays)
    assert digest(read(tmp_path / "f")) == digest(arrays)


def test_a_pickle_is_never_executed(tmp_path):
    folder = tmp_path / "f"
    write_python(folder, cifar_arrays())
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "pwned").encode() + b"'\ntR."
    (folder / "data_batch_1").write_bytes(evil)
    with pytest.raises(ValueError, match="data_batch_1"):
        formats.read_cifar_python(folder)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "damage", [b"", b"\x1f\x8b junk", gzip.compress(b"no idx", mtime=0), gzip.compress(b"\0\0\x08\x03\0\0", mtime=0)]
)
def test_broken_idx_files_are_noticed(tmp_path, damage):
    write_idx(tmp_path, idx_arrays())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(damage)
    with pytest.raises(ValueError, match="train-images"):
        formats.read_idx(tmp_path)
