"""Data of one's own: arrays, folders of images, torch data sets; what is none is one clear sentence."""

import numpy as np
import pytest
import torch
from PIL import Image

from rebafl import data as datasets
from rebafl.base.errors import UserError
from support.archives import RANDOM, idx_arrays


def test_npz(tmp_path):
    arrays = {**idx_arrays(), "classes": np.array([f"c{k}" for k in range(10)])}
    np.savez(tmp_path / "d.npz", **arrays)
    data = datasets.load(str(tmp_path / "d.npz"))
    assert data.shape == (1, 28, 28)
    assert data.classes[3] == "c3"
    assert data.inputs(data.x_train).mean().abs() < 1e-4


@pytest.mark.parametrize("shape", [(6, 5), (6, 8, 9), (6, 8, 9, 3), (6, 3, 8, 9)])
def test_npz_shapes(tmp_path, shape):
    x = RANDOM.normal(size=shape)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(6), x_test=x[:2], y_test=np.arange(2))
    expected = {2: (5,), 3: (1, 8, 9), 4: (3, 8, 9)}[len(shape)]
    assert datasets.load(str(tmp_path / "d.npz")).shape == expected


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": None}, {"y_train": np.arange(5)}, {"y_train": np.arange(6) - 1}, {"y_train": np.ones(6)},
        {"x_train": np.full((6, 28, 28), np.nan)}, {"x_test": np.ones((4, 27, 28))},
        {"x_train": np.ones((6, 2, 2, 2, 2))},
        {"x_train": np.array(["a"] * 6)}, {"y_test": np.zeros(0, int), "x_test": np.ones((0, 28, 28))},
        {"x_train": np.array([{}] * 6, dtype=object)}, {"classes": np.array(["only one"])},
    ],
)  # fmt: skip
def test_npz_that_is_no_data_set(tmp_path, change):
    arrays = {key: value for key, value in {**idx_arrays(), **change}.items() if value is not None}
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(UserError, match=r"d\.npz") as error:
        datasets.load(str(tmp_path / "d.npz"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text", b"\x93NUMPY"])
def test_files_that_are_no_npz(tmp_path, content):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"d\.npz cannot be read"):
        datasets.load(str(tmp_path / "d.npz"))


def make_images(folder, count=10, size=(12, 12)):
    for k in range(count):
        for name in ("cat", "dog"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(RANDOM.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / name / f"{k}.png")


def test_folder_with_and_without_a_split(tmp_path):
    make_images(tmp_path / "a" / "train", 6)
    make_images(tmp_path / "a" / "test", 2)
    split = datasets.load(str(tmp_path / "a"))
    assert (len(split.y_train), len(split.y_test), split.classes, split.shape) == (12, 4, ("cat", "dog"), (3, 12, 12))
    make_images(tmp_path / "b")
    whole = datasets.load(str(tmp_path / "b"))
    assert (whole.y_train.bincount().tolist(), whole.y_test.bincount().tolist()) == ([8, 8], [2, 2])


def test_folders_that_are_no_data_set(tmp_path):
    with pytest.raises(UserError, match="two folders"):
        datasets.load(str(tmp_path))
    make_images(tmp_path)
    (tmp_path / "cat" / "x.png").write_text("no image")
    with pytest.raises(UserError, match=r"x\.png"):
        datasets.load(str(tmp_path))
    Image.new("RGB", (5, 6)).save(tmp_path / "cat" / "x.png")
    with pytest.raises(UserError, match=r"make all images alike"):
        datasets.load(str(tmp_path))


def test_torch_datasets():
    pairs = [(torch.full((3, 4, 5), float(k)), k % 2) for k in range(6)]
    data = datasets.from_torch(
        pairs, pairs[:2], classes=["even", "odd"], clients=[f"c{n % 3}" for n in range(len(pairs))]
    )
    assert data.client_train is not None
    assert len(set(data.client_train.tolist())) == 3
    with pytest.raises(UserError, match="must hold pairs of a tensor"):
        datasets.from_torch([(x, "odd") for x, _ in pairs], pairs)
    assert data.shape == (3, 4, 5)
    assert data.y_train.tolist() == [0, 1, 0, 1, 0, 1]
    assert torch.equal(data.x_train[4], torch.full((4, 5, 3), 4.0))


@pytest.mark.parametrize("labels", [np.array([0, 10**8]), np.array([0, 2**63 + 5], dtype=np.uint64)])
def test_labels_that_are_no_classes_end_at_once(tmp_path, labels):
    x = np.ones((2, 3))
    np.savez(tmp_path / "d.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    with pytest.raises(UserError, match="class numbers from 0"):
        datasets.load(str(tmp_path / "d.npz"))


def test_numbers_too_large_for_float32_are_refused(tmp_path):
    x = np.full((2, 3), 1e300)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(2), x_test=x, y_test=np.arange(2))
    with pytest.raises(UserError, match="too large"):
        datasets.load(str(tmp_path / "d.npz"))
