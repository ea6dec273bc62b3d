"""What does a variational autoencoder make of a mean of features? Its encoder goes from features to a latent normal.

Both halves are trained together on public pictures, for the k that is attacked. The answer is the decoder's picture of
the latent mean; it is told the class's mean picture, so that one network serves all classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .decoder import UpConvolutions
from .pairs import Batch
from .trained import Trained

DIVERGENCE = 1e-3
"""Weight of the Kullback-Leibler divergence beside the squared error of a picture, both per number."""


class FeatureVAE(nn.Module):
    """The latent space has as many dimensions as there are coefficients, and begins as these."""

    def __init__(self, coefficients: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.centre, self.spread, self.bend = (_small(coefficients) for _ in range(3))
        self.decoder = UpConvolutions(coefficients, shape)

    def encode(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance."""
        return coefficients + self.centre(coefficients), (self.spread(coefficients) - 4).clamp(-8, 4)

    def decode(self, latent: Tensor, batch: Batch, mean: Tensor) -> Tensor:
        rough = batch.lift(latent + self.bend(latent))
        out: Tensor = rough + self.decoder(latent, rough, mean)
        return out


def _small(size: int) -> nn.Sequential:
    last = nn.Linear(128, size)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Linear(size, 128), nn.LeakyReLU(), last)


def feature_vae(first: int = 400, again: int = 40) -> Trained:
    """The attack; `first` and `again`: steps of the first training, and of every other."""

    def answer(net: nn.Module, batch: Batch, mean: Tensor) -> Tensor:
        assert isinstance(net, FeatureVAE)
        latent, _ = net.encode(batch.coefficients)
        return net.decode(latent, batch, mean)

    def loss(net: nn.Module, batch: Batch, mean: Tensor) -> Tensor:
        assert isinstance(net, FeatureVAE)
        centre, spread = net.encode(batch.coefficients)
        drawn = centre + (spread / 2).exp() * torch.randn_like(centre)
        divergence = (centre.square() + spread.exp() - spread - 1).mean() / 2
        return F.mse_loss(net.decode(drawn, batch, mean), batch.wanted) + DIVERGENCE * divergence

    return Trained("VAE from features", FeatureVAE, loss, answer, first, again)
