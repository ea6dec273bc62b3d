"""Which generator draws a picture with the given feature? One of its own for each mean, found by moving its weights.

After GRNN (Ren, Deng, Xie: Generative Regression Neural Network, 2022): a small network turns a random latent into a
picture, and its weights and the latent are moved until the picture's feature meets the mean. Theirs meets a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...base.rng import generator
from .contract import Known, Reconstruct, Tick
from .descent import Setting, descend
from .public import ClassStarts, Divider
from .tuning import Chosen

LATENT, CHANNELS, SLOPE = 16, 16, 0.2
DARKEST = 0.02  # nearer to black or white a sigmoid hardly moves
CANDIDATES = (
    *(Setting(150, 0.02, variation) for variation in (0.03, 0.3, 1.0, 3.0)),
    *(Setting(40, 0.02, variation) for variation in (0.3, 1.0)),
)


class Generator:
    """A generator whose weights are optimised until its picture's feature meets the mean."""

    name = "generator"

    def __init__(self, candidates: Sequence[Setting] = CANDIDATES) -> None:
        self.chosen, self.divide = Chosen(candidates), Divider()

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        public = self.divide(known)
        painter = GeneratorPainter(ClassStarts.of(known, public), known.seed)
        setting = self.chosen(known, public, painter, k, tick)
        return lambda means: descend(known, public.distance, painter, means, [setting] * len(means), tick)[0]


@dataclass(frozen=True)
class GeneratorPainter:
    """Latent, dense, then twice: double the size, convolve 3x3; at last mix channels into colours.

    Every row has weights of its own; a convolution in as many groups as there are rows computes them together. All rows
    start from the same random weights. What is drawn is added to the class mean, before the sigmoid.
    """

    starts: ClassStarts
    seed: int

    def start(self, means: Tensor) -> list[Tensor]:
        mean = self.starts.nearest(means).clamp(DARKEST, 1 - DARKEST)
        colours, height, width = mean.shape[1:]
        small = CHANNELS * math.ceil(height / 4) * math.ceil(width / 4)
        random = generator(self.seed, "privacy inversion generator")

        def drawn(size: Sequence[int], inputs: int) -> Tensor:
            numbers = random.standard_normal(tuple(size)) * math.sqrt(2 / inputs)
            return torch.from_numpy(numbers).to(mean.dtype).expand(len(mean), *size)

        def zeros(*size: int) -> Tensor:
            return mean.new_zeros(len(mean), *size)

        three = (CHANNELS, CHANNELS, 3, 3)
        return [
            mean.logit(),
            drawn((LATENT,), 2),
            drawn((LATENT, small), LATENT),
            zeros(small),
            drawn(three, 9 * CHANNELS),
            zeros(CHANNELS),
            drawn(three, 9 * CHANNELS),
            zeros(CHANNELS),
            zeros(colours, CHANNELS),
            zeros(colours),
        ]

    def paint(self, parameters: Sequence[Tensor]) -> Tensor:
        base, latent, dense, shift, first, first_bias, second, second_bias, mix, mix_bias = parameters
        rows, _, height, width = base.shape
        x = torch.einsum("rl,rls->rs", latent, dense) + shift
        x = F.leaky_relu(x, SLOPE).reshape(rows, CHANNELS, math.ceil(height / 4), math.ceil(width / 4))
        for weight, bias in ((first, first_bias), (second, second_bias)):
            x = F.leaky_relu(_own_convolution(F.interpolate(x, scale_factor=2), weight, bias), SLOPE)
        drawn = torch.einsum("rcx,rxhw->rchw", mix, x[..., :height, :width]) + mix_bias[..., None, None]
        return (base + drawn).sigmoid()

    def unlikely(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[1].new_zeros(len(parameters[1]))

    def speeds(self, setting: Setting) -> Sequence[float]:
        return 0.0, *[1.0] * 9  # the class mean stays


def _own_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """3x3, each row of `x` with its own weights."""
    rows, _, height, width = x.shape
    together = x.reshape(1, -1, height, width)
    out = F.conv2d(together, weight.flatten(0, 1), bias.flatten(), padding=1, groups=rows)
    return out.reshape(rows, -1, height, width)
