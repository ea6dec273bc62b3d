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


def crop_flip(wide: Tensor, random: np.random.Generator) -> Tensor:
    """A random window of each image, mirrored half the time; the whole batch at once."""
    count, height, width, _ = wide.shape
    device = wide.device
    corner = torch.from_numpy(random.integers(0, 2 * PAD + 1, size=(2, count))).to(device)
    mirrored = torch.from_numpy(random.random(count) < 0.5).to(device)
    rows = corner[0][:, None] + torch.arange(height - 2 * PAD, device=device)
    columns = torch.arange(width - 2 * PAD, device=device)
    columns = corner[1][:, None] + torch.where(mirrored[:, None], columns.flip(0), columns)
    return wide[torch.arange(count, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]
