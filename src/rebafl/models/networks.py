"""Which networks come with the package? The paper's two CNNs, and two small ones for inputs of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .contract import Classifier
from .kernels import pooled_conv


class FashionCNN(Classifier):
    """The paper's first CNN: conv 5x5 (16), pool, conv 5x5 (32), pool, FC 128, FC classes."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.conv1 = nn.Conv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        height, width = (((side - 4) // 2 - 2) // 2 for side in sides)
        self.flat = 32 * height * width
        self.hidden = nn.Linear(self.flat, 128)
        self.head = nn.Linear(128, classes)

    def features(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv1, x)
        x = _pooled(self.conv2, x)
        return F.leaky_relu(self.hidden(x.flatten(1)))


class CifarCNN(Classifier):
    """The paper's second CNN: a further conv 3x3 (64) and pool; FC 128 stays linear, the head has no bias."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.conv1 = nn.Conv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        height, width = ((((side - 4) // 2 - 2) // 2) // 2 for side in sides)
        self.flat = 64 * height * width
        self.hidden = nn.Linear(self.flat, 128)
        self.head = nn.Linear(128, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv1, x)
        x = _pooled(self.conv2, x)
        x = _pooled(self.conv3, x)
        out: Tensor = self.hidden(x.flatten(1))
        return out


class MLP(Classifier):
    """Hidden layers, by default one of 128, for inputs of any shape."""

    def __init__(self, shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (128,)) -> None:
        super().__init__()
        first, *others = hidden
        self.hidden = nn.Linear(int(torch.Size(shape).numel()), first)
        self.further = nn.ModuleList(nn.Linear(*widths) for widths in pairwise([first, *others]))
        self.head = nn.Linear(hidden[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.hidden(x.flatten(1)))
        for layer in self.further:
            x = F.leaky_relu(layer(x))
        return x


class LinearModel(Classifier):
    """Logistic regression on the inputs themselves, such as hashed bags of words."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(int(torch.Size(shape).numel()), classes)

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def _pooled(conv: nn.Conv2d, x: Tensor) -> Tensor:
    assert conv.bias is not None
    return pooled_conv(x, conv.weight, conv.bias, int(conv.padding[0]))
