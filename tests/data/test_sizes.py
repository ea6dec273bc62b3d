"""Images of any size, arrays whose channels come first or last, texts, and samples that say whose they are."""

import numpy as np
import pytest
import torch
from PIL import Image

from rebafl import UserError, from_arrays, from_torch, make_settings
from rebafl.data import load, with_side
from rebafl.data.text import WIDTH, hashed_words
from rebafl.population.given import Natural
from rebafl.population.splitting import split_by
from rebafl.runs.experiment import split_of
from support.archives import RANDOM, random_bytes
from support.toy import quiet


def arrays_of(x, **more):
    y = np.arange(len(x)) % 2
    return {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **more}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 3, 32, 32), (3, 32, 32)),
        ((6, 32, 32, 3), (3, 32, 32)),
        ((6, 1, 28, 28), (1, 28, 28)),
        ((6, 12, 64, 64), (12, 64, 64)),
        ((6, 64, 64, 12), (12, 64, 64)),
        ((6, 3, 8, 9), (3, 8, 9)),
        ((6, 4, 28, 28), (4, 28, 28)),
    ],
)
def test_channels_are_recognised_first_or_last(shape, expected):
    """The pixels, too: channel 0 of the first image is the same plane, wherever it stood."""
    x = RANDOM.normal(size=shape).astype(np.float32)
    data = from_arrays("a", arrays_of(x), mean=[0.0], std=[1.0])
    assert data.shape == expected
    first = shape[1] == expected[0]
    assert np.array_equal(data.inputs(data.x_train)[0, 0], x[0, 0] if first else x[0, ..., 0])


@pytest.mark.parametrize("shape", [(6, 3, 5, 3), (6, 1, 28, 1), (6, 8, 8, 8), (6, 5, 4, 5), (6, 3, 32, 1)])
def test_what_cannot_be_told_is_refused_and_can_be_said(shape):
    x = random_bytes(*shape)
    with pytest.raises(UserError, match="nobody can tell where the channels are"):
        from_arrays("a", arrays_of(x))
    assert from_arrays("a", arrays_of(x), layout="channels-last").shape == (shape[3], shape[1], shape[2])


def test_torch_images_are_never_guessed():
    pairs = [(torch.zeros(1, 3, 5), 0), (torch.ones(1, 3, 5), 1)]
    assert from_torch(pairs, pairs).shape == (1, 3, 5)


@pytest.mark.parametrize("side", [8, 224])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_resize_keeps_what_the_picture_shows(side, kind):
    x = np.zeros((4, 28, 28, 3), dtype=kind)
    x[:, :, 14:] = 200
    data = with_side(from_arrays("a", arrays_of(x)), side)
    assert data.shape == (3, side, side)
    assert data.x_train.dtype == torch.from_numpy(x).dtype
    assert float(data.x_train[0, :, 0].max()) == 0
    assert float(data.x_train[0, :, -1].min()) == 200


def test_resize_needs_images_and_memory(monkeypatch):
    with pytest.raises(UserError, match="holds no images"):
        with_side(from_arrays("a", arrays_of(random_bytes(4, 5))), 8)
    monkeypatch.setattr("rebafl.data.memory", lambda: 10**6)
    with pytest.raises(UserError, match="more than fit here"):
        with_side(from_arrays("a", arrays_of(random_bytes(4, 8, 8))), 4096)


def test_a_folder_of_images_of_several_sizes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(5):
            Image.fromarray(random_bytes(10 + k, 12)).save(tmp_path / name / f"{k}.png")
    with pytest.raises(UserError, match="resize=SIDE"):
        load(str(tmp_path), quiet)
    assert load(str(tmp_path), quiet, side=16).shape == (1, 16, 16)


def test_hashed_words():
    rows = hashed_words(np.array(["Good good day", "day, GOOD good!", "", "night"]))
    assert rows.shape == (4, WIDTH)
    assert np.array_equal(rows[0], rows[1]), "neither order nor case nor punctuation counts"
    assert sorted(rows[0][rows[0] > 0].tolist()) == pytest.approx([1 / 5**0.5, 2 / 5**0.5])
    assert not rows[2].any()
    assert float(rows[3].sum()) == 1.0
    data = from_arrays("t", arrays_of(np.array(["a b", "c", "a"] * 2)))
    assert data.shape == (WIDTH,)
    assert torch.equal(data.inputs(data.x_train), data.x_train), "no normalisation"


def test_clients_by_name_in_an_npz(tmp_path):
    x = random_bytes(6, 4)
    owners = np.array(["mia", "leo", "mia", "zoe", "leo", "mia"])
    np.savez(tmp_path / "d.npz", **arrays_of(x, client_train=owners, ward=np.arange(6)))
    data = load(str(tmp_path / "d.npz"), quiet)
    settings = make_settings({"partition": "natural"})
    _, split = split_of(settings, data)
    assert [split.indices(client).tolist() for client in range(split.clients)] == [[1, 4], [0, 2, 5], [3]]
    _, first = split_of(make_settings({"partition": {"kind": "natural", "clients": 2}}), data)
    assert first.clients == 2
    by_ward = load(str(tmp_path / "d.npz"), quiet, column="ward")
    assert split_of(settings, by_ward)[1].clients == 6
    assert by_ward.digest != data.digest
    with pytest.raises(UserError, match="has no array floor"):
        load(str(tmp_path / "d.npz"), quiet, column="floor")
    with pytest.raises(UserError, match="of 3 clients; take fewer"):
        split_of(make_settings({"partition": {"kind": "natural", "clients": 4}}), data)
    with pytest.raises(UserError, match="do not say whose each sample is"):
        split_by(Natural(), np.arange(3), 3, 0)
    np.savez(tmp_path / "w.npz", **arrays_of(x, client_train=np.arange(5)))
    with pytest.raises(UserError, match="one whole number or name for each of the 6"):
        load(str(tmp_path / "w.npz"), quiet)


def test_folders_of_clients(tmp_path):
    for client, names in (("ann", "ab"), ("bob", "b"), ("cid", "ab")):
        for name in names:
            (tmp_path / "clients" / client / name).mkdir(parents=True)
            for k in range(5):
                Image.fromarray(random_bytes(8, 8)).save(tmp_path / "clients" / client / name / f"{k}.png")
    natural = make_settings({"partition": "natural"})
    data = load(str(tmp_path), quiet)
    assert split_of(natural, data)[1].table().tolist() == [[4, 4], [0, 4], [4, 4]]
    assert len(data.y_test) == 5
    for name in "ab":
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.fromarray(random_bytes(8, 8)).save(tmp_path / "test" / name / "0.png")
    data = load(str(tmp_path), quiet)
    assert split_of(natural, data)[1].table().tolist() == [[5, 5], [0, 5], [5, 5]]
    assert data.y_test.tolist() == [0, 1]
    (tmp_path / "clients" / "dan" / "a").mkdir(parents=True)
    with pytest.raises(UserError, match="dan holds no images"):
        load(str(tmp_path), quiet)
