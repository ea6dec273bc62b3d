"""Known data sets: every source gives the same bytes, and broken ones one clear sentence and no half-written cache."""

import io
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from rebafl import data as datasets
from rebafl.base.errors import UserError
from rebafl.data import catalog, fetch, formats
from rebafl.data.arrays import digest
from support.archives import cifar_arrays, known, write_binary
from support.toy import quiet
from support.web import Server


def test_fashion_mini_is_what_it_says():
    data = datasets.load("fashion-mini")
    assert data.shape == (1, 28, 28)
    assert data.y_train.bincount().tolist() == [600] * 10
    assert data.y_test.bincount().tolist() == [100] * 10
    path = Path(datasets.__file__).with_name("fashion-mini.npz")
    assert path.stat().st_size < 4_000_000
    assert path.with_name("fashion-mini.LICENSE").exists()


def test_a_copy_that_is_there_is_used_and_cached(home):
    arrays = cifar_arrays()
    write_binary(home / "cifar-10-batches-bin", arrays)
    spec = replace(catalog.CIFAR_10, digest=digest(arrays), sources=())
    assert catalog.load_known(spec, quiet).digest == digest(arrays)
    for file in (home / "cifar-10-batches-bin").iterdir():
        file.unlink()
    assert len(catalog.load_known(spec, quiet).y_train) == 10


def test_a_copy_with_other_bytes_is_refused_and_nothing_is_cached(home):
    arrays = cifar_arrays()
    write_binary(home / "cifar-10-batches-bin", {**arrays, "x_test": 255 - arrays["x_test"]})
    with pytest.raises(UserError, match="other data than cifar-10"):
        catalog.load_known(replace(catalog.CIFAR_10, digest=digest(arrays), sources=()), quiet)
    assert list(home.glob("*.safetensors")) == []


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_damaged_cache_is_noticed(home, cut):
    arrays = cifar_arrays()
    spec = known(arrays)
    catalog._store(spec, arrays)
    path = home / "cifar-10.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match="delete it and run: rebafl data get cifar-10"):
        catalog.load_known(spec, quiet)


def test_a_changed_cache_is_noticed(home):
    arrays = cifar_arrays()
    spec = known(arrays)
    catalog._store(spec, {**arrays, "y_test": arrays["y_test"] * 0})
    with pytest.raises(UserError, match="damaged"):
        catalog.load_known(spec, quiet)


def test_an_unwritable_data_folder_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="REBAFL_DATA"):
        catalog._store(known(cifar_arrays()), cifar_arrays())


def test_sources_are_tried_in_order_until_one_is_right(server, home, tmp_path):
    """The first is unreachable, the second sends other data, the third a good archive."""
    arrays = cifar_arrays()
    write_binary(tmp_path / "good" / "cifar-10-batches-bin", arrays)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / "good" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    Server.content = packed.getvalue()
    write_binary(tmp_path / "bad", {**arrays, "y_test": arrays["y_test"] * 0})
    read = formats.read_cifar_binary
    said: list[str] = []

    def archive(folder):
        return fetch.download_all([f"{server}/cifar.tar.gz"], folder, show=False) / "cifar-10-batches-bin"

    sources = (
        catalog.Source("one", lambda folder: fetch.download_all([f"{server}/missing"], folder, show=False), read),
        catalog.Source("two", lambda folder: tmp_path / "bad", read),
        catalog.Source("three", archive, read),
    )
    spec = replace(known(arrays), sources=sources)
    assert len(catalog.load_known(spec, said.append).y_train) == 10
    assert [text.split("fetching ")[1] for text in said if "fetching" in text] == ["one …", "two …", "three …"]
    assert ["404" in text for text in said if "failed" in text] == [True, False]
    assert sorted(path.name for path in home.iterdir()) == ["cifar-10.safetensors", "downloads"]
    with pytest.raises(UserError, match=r"404.*came damaged"):
        catalog.load_known(replace(spec, name="other", sources=sources[:2], places=catalog.CIFAR_10.places), quiet)
    assert not (home / "other.safetensors").exists()


def test_unknown_names_suggest_known_ones():
    with pytest.raises(UserError, match="did you mean 'fashion-mnist'"):
        datasets.load("fashion-mnits")


def test_a_cached_data_set_with_a_flipped_bit_is_refused_or_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    random_bytes = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), dtype=np.uint8)
    arrays: dict[str, np.ndarray] = {
        "x_train": random_bytes[:6],
        "y_train": np.arange(6),
        "x_test": random_bytes[6:],
        "y_test": np.arange(3),
    }
    spec = replace(catalog.CIFAR_10, digest=digest(arrays), sources=(), places=())
    catalog._store(spec, arrays)
    path = tmp_path / "cifar-10.safetensors"
    whole, refused = path.read_bytes(), 0
    chance = random.Random(3)
    for _ in range(200):
        copy = bytearray(whole)
        copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        path.write_bytes(copy)
        try:
            loaded = catalog.load_known(spec, lambda text: None)
        except UserError as error:
            refused += 1
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:
            assert loaded.digest == spec.digest
            assert np.array_equal(loaded.x_train.numpy(), arrays["x_train"])
    assert refused > 150
    path.write_bytes(whole)
    assert safetensors.numpy.load_file(path).keys() == arrays.keys()


@pytest.mark.parametrize("name", [name for name in catalog.KNOWN if name != "cifar-mini"])
def test_how_many_training_images_there_are_is_said_alike(name):
    known = catalog.KNOWN[name]
    assert known.about.startswith(f"{known.training:,} + ")
