"""How is an attack trained, and tuned? On means of k public pictures, from what was learned for the last model.

A squared error makes pale pictures: what is uncertain is left at the class's mean, and then pictures that lie near that
mean are nearest by chance. So contrast is tuned too, by identifying public pictures in line-ups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ...base.rng import generator, torch_stream
from ...population.partition import Indices
from .contract import Known, Reconstruct, Tick
from .lineups import SIZE
from .pairs import Batch, Pairs, Spaces, pairs

CONTRASTS = (1.0, 1.15, 1.3, 1.5, 2.0, 3.0, 5.0, 8.0)
DEARER = 1.2
"""How much more squared error, towards a member, the tuned contrast may cost than the best one."""

Loss = Callable[[nn.Module, Batch, Tensor], Tensor]
"""The network, a batch, and the mean picture."""
Answer = Callable[[nn.Module, Batch, Tensor], Tensor]
"""The same -> pictures, as scaled differences from the mean picture."""


@dataclass
class Trained:
    """An attack by a network that is trained on such pairs; each training starts from the last one's weights.

    So the first is long and the others are short: over the clients' models, and from one k to the next. Means of more
    than one picture are nearer to Gaussian, and leave less to learn beyond the line.
    """

    name: str
    make: Callable[[int, tuple[int, int, int]], nn.Module]
    loss: Loss
    answer: Answer
    first: int = 400
    again: int = 40
    rate: float = 3e-3
    starts: dict[int, dict[int, dict[str, Tensor]]] = field(default_factory=dict)
    """By the number of features, then by k: the weights that the last training ended with."""
    spaces: Spaces = field(default_factory=Spaces)
    last: Pairs | None = None

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        if self.last is None or self.last.known is not known:
            self.last = pairs(known, self.spaces)
        some = self.last
        channels, height, width = known.pictures.shape[1:]
        with torch_stream(known.seed, f"inversion {self.name}", k):
            net = self.make(len(some.space.basis), (channels, height, width))
            starts = self.starts.setdefault(len(some.straight.centre), {})
            nearest = min(starts, key=lambda other: abs(math.log(other / k)), default=None)
            if nearest is not None:
                net.load_state_dict(starts[nearest])
            steps = self.first if nearest is None else self.again if k == 1 else self.again // 2
            self._fit(net, some.batches(k, steps), steps, some.space.mean)
        finish = self._tuned(net.eval(), some, k)
        starts[k] = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        tick(f"{self.name} trained for k = {k}")

        @torch.no_grad()
        def reconstruct(means: Tensor) -> Tensor:
            return some.pictures_from(finish(some.attacked(means, k)), k)

        return reconstruct

    def _fit(self, net: nn.Module, batches: Iterable[Batch], steps: int, mean: Tensor) -> None:
        optimiser = torch.optim.Adam(net.parameters(), self.rate)
        for step, batch in enumerate(batches):
            for group in optimiser.param_groups:
                group["lr"] = self.rate * min(1.0, (step + 1) / 10) * (1 + math.cos(math.pi * step / steps)) / 2
            optimiser.zero_grad()
            torch.autograd.backward(self.loss(net, batch, mean))
            optimiser.step()

    @torch.no_grad()
    def _tuned(self, net: nn.Module, some: Pairs, k: int) -> Callable[[Batch], Tensor]:
        """How far to trust the network beyond the straight line, and the contrast, by pictures not trained on."""
        mean = some.space.mean
        batch, groups = some.tuning(k)
        line = batch.straight
        more = self.answer(net, batch, mean) - line
        trust = float(((batch.wanted - line) * more).sum() / more.square().sum().clamp(min=1e-30))
        trust = min(1.0, max(0.0, trust))
        contrast = _contrast((line + trust * more).flatten(1) / math.sqrt(k), groups, some)

        def finish(batch: Batch) -> Tensor:
            straight = batch.straight
            return contrast * (straight + trust * (self.answer(net, batch, mean) - straight))

        return finish


def _contrast(found: Tensor, groups: list[Indices], some: Pairs) -> float:
    """The one with which most members are nearest in line-ups, of those that cost little squared error."""
    pictures = some.pictures.flatten(1)
    random = generator(some.known.seed, "inversion contrast")
    hits, errors = torch.zeros(len(CONTRASTS)), torch.zeros(len(CONTRASTS))
    for one, group in zip(found, groups, strict=True):
        beside = random.choice(len(pictures), size=min(SIZE, len(pictures)), replace=False)
        beside = beside[~np.isin(beside, group)][: SIZE - 1]
        shown = pictures[torch.from_numpy(np.concatenate([group[:1], beside]))]
        # ‖x − cr‖² for all contrasts c at once
        far = (
            shown.square().sum(1)
            - 2 * torch.tensor(CONTRASTS)[:, None] * (shown @ one)
            + (torch.tensor(CONTRASTS)[:, None].square() * one.square().sum())
        )
        hits += (far.argmin(1) == 0).float()
        errors += far[:, 0]
    cheap = errors <= DEARER * errors.min()
    return CONTRASTS[int(torch.where(cheap, hits, torch.full_like(hits, -1.0)).argmax())]
