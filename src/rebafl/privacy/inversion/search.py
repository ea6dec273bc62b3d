"""Which picture that looks like public ones has the given feature? The latents of an autoencoder are searched for it.

The variational autoencoder is trained once on public pictures, by their coordinates along the directions in which they
vary most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...base.rng import generator, torch_stream
from .contract import Known, Reconstruct, Tick
from .descent import Setting, descend
from .pixels import Directions, directions
from .public import ClassStarts, Divider, Learnt, Public
from .tuning import Chosen

DIRECTIONS, HIDDEN, LATENT = 200, 512, 128
STEPS, BATCH, RATE = 2000, 128, 1e-3
LIKELY = 0.3
"""Weight of the latents' divergence: with 1, the bound's own, pictures lose the detail by which they are known."""
CANDIDATES = (
    *(Setting(100, 0.1, variation, prior) for variation in (0.3, 1.0) for prior in (0.003, 0.1, 1.0)),
    *(Setting(20, 0.1, variation, 0.1) for variation in (0.3, 1.0)),
)


class Search:
    """A search among what a variational autoencoder of public pictures can draw."""

    name = "search"

    def __init__(self, candidates: Sequence[Setting] = CANDIDATES, training: int = STEPS, restarts: int = 3) -> None:
        self.chosen, self.training, self.restarts = Chosen(candidates), training, restarts
        self.divide, self.learnt = Divider(), Learnt[Autoencoder]()

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        public = self.divide(known)
        net = self.learnt(known, lambda: trained(public, known.seed, self.training, tick))
        starts = ClassStarts.of(known, public)
        painters = [SearchPainter(net, starts, known.seed, number) for number in range(self.restarts)]
        setting = self.chosen(known, public, painters[0], k, tick)

        def reconstruct(means: Tensor) -> Tensor:
            found = [descend(known, public.distance, p, means, [setting] * len(means), tick) for p in painters]
            nearest = torch.stack([loss for _, loss in found]).argmin(0)
            return torch.stack([pictures for pictures, _ in found])[nearest, torch.arange(len(means))]

        return reconstruct


class Autoencoder(nn.Module):
    """Coordinates of pictures to latents, and back to pictures."""

    def __init__(self, along: Directions, mean: Tensor) -> None:
        super().__init__()
        count = len(along.along)
        self.along, self.mean = along.along, mean
        self.lengths = along.along.norm(dim=1)
        self.encoder = nn.Sequential(nn.Linear(count, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, count))

    def coordinates(self, pictures: Tensor) -> Tensor:
        found: Tensor = (pictures - self.mean).flatten(1) @ (self.along / self.lengths.square()[:, None]).T
        return found

    def encode(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_spread = self.encoder(coordinates).chunk(2, 1)
        return mean, log_spread

    def pictures(self, latents: Tensor) -> Tensor:
        drawn: Tensor = self.decoder(latents) @ self.along
        return self.mean + drawn.reshape(-1, *self.mean.shape)


def trained(public: Public, seed: int, steps: int, tick: Tick) -> Autoencoder:
    """By the evidence bound, with the noise of pixels at what is left of them, and less weight on likely latents."""
    with torch_stream(seed, "privacy inversion autoencoder"):
        net = Autoencoder(directions(public.learn, seed, DIRECTIONS), public.learn.mean(0)).to(public.learn.dtype)
    data = net.coordinates(public.learn)
    random = generator(seed, "privacy inversion training")
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    for step in range(steps):
        batch = data[torch.from_numpy(random.integers(len(data), size=BATCH))]
        mean, log_spread = net.encode(batch)
        noise = torch.from_numpy(random.standard_normal(tuple(mean.shape))).to(mean.dtype)
        gap = (net.decoder(mean + noise * log_spread.exp()) - batch) * net.lengths
        surprise = 0.5 * (mean.square() + (2 * log_spread).exp() - 1) - log_spread
        loss = 0.5 * gap.shape[1] * gap.square().mean().log() + LIKELY * surprise.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            tick(f"autoencoder: {step + 1} of {steps} steps")
    return net.requires_grad_(False)


@dataclass(frozen=True)
class SearchPainter:
    """Latents: first from that of the class mean, then from random ones, the same for every row."""

    net: Autoencoder
    starts: ClassStarts
    seed: int
    number: int

    def start(self, means: Tensor) -> list[Tensor]:
        latents = self.net.encode(self.net.coordinates(self.starts.nearest(means)))[0]
        if self.number:
            drawn = generator(self.seed, "privacy inversion restart", self.number).standard_normal(latents.shape[1])
            latents = torch.from_numpy(drawn).to(latents.dtype).expand_as(latents)
        return [latents]

    def paint(self, parameters: Sequence[Tensor]) -> Tensor:
        return self.net.pictures(parameters[0])

    def unlikely(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[0].square().mean(1)

    def speeds(self, setting: Setting) -> Sequence[float]:
        return (1.0,)
