"""Who compares pictures by what they show? A classifier of its own seed, trained on public pictures.

It has nothing of the attacked model: an attack that fools that model's features does not thereby fool these.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...base.rng import generator, torch_stream
from ...models.contract import CHUNK

STEPS, BATCH, RATE = 400, 100, 2e-3


class Judge(nn.Module):
    """Two convolutions and 64 features, for pictures of any size."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * 4 * 4, 64)
        self.head = nn.Linear(64, classes)

    def features(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(F.max_pool2d(self.conv1(x - 0.5), 2))
        x = F.adaptive_avg_pool2d(F.leaky_relu(self.conv2(x)), 4)
        return F.leaky_relu(self.hidden(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x))
        return out

    @torch.no_grad()
    def look(self, pictures: Tensor) -> Tensor:
        return torch.cat([self.features(part) for part in torch.split(pictures, CHUNK)])


def trained_judge(pictures: Tensor, labels: Tensor, classes: int, seed: int, steps: int = STEPS) -> Judge:
    with torch_stream(seed, "inversion judge"):
        judge = Judge(pictures.shape[1], classes)
    random = generator(seed, "inversion judge")
    optimiser = torch.optim.Adam(judge.parameters(), RATE)
    for _ in range(steps):
        rows = torch.from_numpy(random.integers(len(pictures), size=BATCH))
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(judge(pictures[rows]), labels[rows]))
        optimiser.step()
    return judge.eval()
