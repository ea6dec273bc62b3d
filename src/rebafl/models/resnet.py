"""Which residual networks come with the package? Two usual ones, with group instead of batch normalisation.

Batch statistics of clients that hold few classes differ so much that their mean fits nobody; groups of channels of one
image need no batch. Paper: Hsieh et al., The Non-IID Data Quagmire of Decentralized Machine Learning, 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from .contract import Classifier

GROUPS = 2
LARGE = 64  # pixels a side from which images are made smaller first


class Block(nn.Module):
    """Two 3x3 convolutions, added to what came in; where the size changes, to a 1x1 convolution of it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.GroupNorm(GROUPS, outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class ResNet(Classifier):
    """`widths` has a stage each, of `blocks` blocks; all stages but the first halve the image."""

    def __init__(self, shape: tuple[int, ...], classes: int, widths: Sequence[int], blocks: int) -> None:
        super().__init__()
        channels, *sides = shape
        wide = widths[0]
        if min(sides) >= LARGE:
            conv = nn.Conv2d(channels, wide, 7, 2, 3, bias=False)
            self.stem = nn.Sequential(conv, nn.GroupNorm(GROUPS, wide), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(channels, wide, 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, wide), nn.ReLU()
            )
        stages: list[nn.Module] = []
        for number, width in enumerate(widths):
            for block in range(blocks):
                stages.append(Block(wide, width, 2 if number and not block else 1))
                wide = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(wide, classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        return x.mean((2, 3))


class ResNet18(ResNet):
    """11 million weights; from 64 pixels a side on with the stem of ImageNet, below with a 3x3 convolution."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, widths=(64, 128, 256, 512), blocks=2)


class ResNet20(ResNet):
    """0.27 million weights, made for CIFAR."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, widths=(16, 32, 64), blocks=3)
