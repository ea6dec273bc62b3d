"""Crop and flip."""

import numpy as np
import torch

from rebafl.algorithms.interface import Client, Training
from rebafl.training.images import bordered, crop_flip
from rebafl.training.loop import batches


def test_crop_and_flip_are_windows_of_the_bordered_image():
    """Every transformed image must be found among the 2 x 81 possible ones, and both kinds must occur."""
    image = torch.arange(3 * 8 * 8, dtype=torch.float32).reshape(1, 3, 8, 8).repeat(40, 1, 1, 1)
    labels, fill = torch.zeros(40).long(), torch.tensor([-1.0, -2.0, -3.0])
    own = Client(
        0,
        image,
        labels,
        torch.tensor([40]),
        fill,
        Training(epochs=1, transform="crop-flip"),
        np.random.default_rng(0),
        np.random.default_rng(1),
    )
    (batch,) = batches(own)
    wide = fill[:, None, None].expand(3, 16, 16).clone()
    wide[:, 4:12, 4:12] = image[0]
    windows = [wide[:, r : r + 8, c : c + 8] for r in range(9) for c in range(9)]
    plain = {tuple(w.flatten().tolist()) for w in windows}
    mirrored = {tuple(w.flip(2).flatten().tolist()) for w in windows}
    found = [tuple(x.flatten().tolist()) for x in batch.x]
    assert all(x in plain or x in mirrored for x in found)
    assert 5 < sum(x in plain for x in found) < 35
    assert len(set(found)) > 25


def test_windows_are_those_that_slicing_image_by_image_gives():
    """Not square, in mixed order and with one image twice: rows, columns and images must not be mixed up."""
    rows = torch.arange(5 * 6 * 7 * 3, dtype=torch.float32).reshape(5, 6, 7, 3)
    wide, index = bordered(rows, torch.tensor([-1.0, -2.0, -3.0])), torch.tensor([3, 0, 4, 3, 1, 2] * 9)
    moved = crop_flip(wide, index, np.random.default_rng(5))
    draws = np.random.default_rng(5)
    top, left = draws.integers(0, 9, size=(2, len(index)))
    mirrored = draws.random(len(index)) < 0.5
    assert 0 < mirrored.sum() < len(index)
    for k, image in enumerate(index):
        window = wide[image, top[k] : top[k] + 6, left[k] : left[k] + 7]
        assert torch.equal(moved[k], window.flip(1) if mirrored[k] else window)
