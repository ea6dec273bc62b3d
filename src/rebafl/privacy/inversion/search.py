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
from .descent import Chosen, ClassStarts, Public, Setting, descend, divide
from .pixels import Directions, directions

DIRECTIONS, HIDDEN, LATENT = 200, 512, 128
STEPS, BATCH, RATE, LIKELY = 2000, 128, 1e-3, 0.3
CANDIDATES = tuple(
    Setting(steps, rate, variation, prior)
    for steps in (100,)
    for rate in (0.05, 0.1)
    for variation in (0.0, 0.5)
    for prior in (0.01, 0.1, 1.0)
)


class Search:
    """A search among what a variational autoencoder of public pictures can draw."""

    name = "search"

    def __init__(self, candidates: Sequence[Setting] = CANDIDATES, training: int = STEPS, restarts: int = 3) -> None:
        self.chosen, self.training, self.restarts = Chosen(candidates), training, restarts
        self.learnt: tuple[Tensor, Autoencoder] | None = None

    def prepare(self, known: Known, k: int, tick: Tick) -> Reconstruct:
        public = divide(known)
        if self.learnt is None or self.learnt[0] is not known.pictures:
            self.learnt = known.pictures, trained(public, known.seed, self.training, tick)
        starts = ClassStarts.of(known, public)
        painters = [SearchPainter(self.learnt[1], starts, known.seed, number) for number in range(self.restarts)]
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
    """By the evidence bound, with the noise of pixels at what is left of them: no weight has to be set by hand."""
    with torch_stream(seed, "privacy inversion autoencoder"):
        net = Autoencoder(directions(public.learn, seed, DIRECTIONS), public.learn.mean(0))
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
