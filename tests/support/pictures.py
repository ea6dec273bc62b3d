"""Small smooth pictures of three classes, and what an attacker would know of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rebafl.base.rng import torch_stream
from rebafl.data.arrays import Inputs
from rebafl.models.networks import FashionCNN
from rebafl.privacy.inversion.contract import Known
from rebafl.privacy.inversion.depths import deep

SIDE, CLASSES = 12, 3
INPUTS = Inputs(classes=("a", "b", "c"), shape=(1, SIDE, SIDE), mean=(0.3,), std=(0.2,), pixels=True)


def drawn(each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Blots of four random strengths on one of three backgrounds."""
    random = np.random.default_rng(seed)
    down, across = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1)
    labels = np.arange(each * CLASSES) % CLASSES
    backgrounds = np.stack([0.3 * down, 0.3 * across, 0.3 * (1 - down)])
    centres = [(0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)]
    blots = np.stack([np.exp(-((down - y) ** 2 + (across - x) ** 2) / 0.04) for y, x in centres])
    strengths = random.uniform(0, 0.65, (len(labels), 4))
    pictures = backgrounds[labels] + np.tensordot(strengths, blots, 1)
    return torch.from_numpy(pictures[:, None].astype(np.float32)), torch.from_numpy(labels)


def net(seed: int = 0) -> FashionCNN:
    with torch_stream(seed, "test"):
        return FashionCNN((1, SIDE, SIDE), CLASSES).eval()


def known(seed: int = 0) -> Known:
    pictures, labels = drawn(100, 1)
    return Known(deep(net(), INPUTS), pictures, labels, seed)
