"""How are training images varied? Random crops and flips, for a whole batch at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PAD = 4  # pixels of border for the random crop


def rows_of(inputs: Tensor) -> Tensor:
    """Images with the channels last in shape too, so that gathering rows keeps the memory layout."""
    return inputs.permute(0, 2, 3, 1).contiguous() if inputs.dim() == 4 else inputs


def bordered(rows: Tensor, black: Tensor) -> Tensor:
    """All images with a black border, made once per round."""
    count, height, width, channels = rows.shape
    wide = black.expand(count, height + 2 * PAD, width + 2 * PAD, channels).clone()
    wide[:, PAD:-PAD, PAD:-PAD] = rows
    return wide


def crop_flip(wide: Tensor, index: Tensor, random: np.random.Generator) -> Tensor:
    """A random window of each image that `index` names, mirrored half the time; the whole batch at once.

    Taken pixel by pixel out of one long row of them, straight from all images: one copy, and the channels of a pixel
    stay together.
    """
    _, height, width, channels = wide.shape
    count, device = len(index), wide.device
    top, left = torch.from_numpy(random.integers(0, 2 * PAD + 1, size=(2, count))).to(device)
    mirrored = torch.from_numpy(random.random(count) < 0.5).to(device)
    rows, columns = (torch.arange(side - 2 * PAD, device=device) for side in (height, width))
    rows = (index * height + top)[:, None] + rows
    columns = left[:, None] + torch.where(mirrored[:, None], columns.flip(0), columns)
    pixels = rows[:, :, None] * width + columns[:, None, :]
    return wide.view(-1, channels).index_select(0, pixels.flatten()).view(*pixels.shape, channels)
