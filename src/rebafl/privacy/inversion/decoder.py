"""What does a decoder make of a mean of features? UpCNN: up-convolutions from features to a picture.

Up-convolutions add to a straight line (line.py) what it does not find. For single pictures that is edges and surfaces;
means of many pictures are nearly Gaussian, for which the line is already the best answer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .pairs import Batch
from .trained import Trained


class UpConvolutions(nn.Module):
    """From coefficients, and the picture that a straight line makes of them, to what is to be added to that picture."""

    def __init__(self, coefficients: int, shape: tuple[int, int, int], width: int = 16) -> None:
        super().__init__()
        channels, *sides = shape
        self.small = [-(-side // 4) for side in sides]
        self.sides, self.width = sides, width
        self.dense = nn.Linear(coefficients, width * self.small[0] * self.small[1])
        self.up1 = nn.ConvTranspose2d(width, width, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1)
        self.mix = nn.Conv2d(width // 2 + 2 * channels, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        for parameter in self.last.parameters():  # it begins as the straight line
            nn.init.zeros_(parameter)
        for parameter in self.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, coefficients: Tensor, straight: Tensor, mean: Tensor) -> Tensor:
        x = F.leaky_relu(self.dense(coefficients)).reshape(-1, self.width, *self.small)
        x = F.leaky_relu(self.up1(x.contiguous(memory_format=torch.channels_last)))
        x = F.leaky_relu(self.up2(x))[..., : self.sides[0], : self.sides[1]]
        x = F.leaky_relu(self.mix(torch.cat([x, straight, mean.expand_as(straight)], 1)))
        out: Tensor = self.last(x)
        return out


def upcnn(first: int = 400, again: int = 40) -> Trained:
    """The attack; `first` and `again`: steps of the first training, and of every other."""

    def answer(net: nn.Module, batch: Batch, mean: Tensor) -> Tensor:
        straight = batch.straight
        out: Tensor = straight + net(batch.coefficients, straight, mean)
        return out

    def loss(net: nn.Module, batch: Batch, mean: Tensor) -> Tensor:
        return F.mse_loss(answer(net, batch, mean), batch.wanted)

    return Trained("UpCNN", UpConvolutions, loss, answer, first, again)
