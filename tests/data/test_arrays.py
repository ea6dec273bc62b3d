"""Pixels become normalised inputs."""

import numpy as np
import torch

from rebafl import data as datasets
from rebafl.data.arrays import from_arrays


def test_inputs_are_normalised_as_the_paper_says():
    data = datasets.load("fashion-mini")
    raw = data.x_train[:3]
    x = data.inputs(raw)
    assert x.shape == (3, 1, 28, 28)
    by_hand = (raw.permute(0, 3, 1, 2).float() / 255 - 0.1307) / 0.3081
    assert torch.allclose(x, by_hand, atol=1e-6)


def test_a_constant_feature_does_not_become_nan():
    ones = np.ones((3, 2), np.float32)
    data = from_arrays("d", {"x_train": ones, "y_train": np.arange(3), "x_test": ones[:1], "y_test": np.zeros(1, int)})
    assert data.inputs(data.x_train).isfinite().all()
