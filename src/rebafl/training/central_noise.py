"""What does the server add to the mean of the clients' changes, so that its broadcasts hide each of them?

Each of m clients clips its change to length C = `protect.update_clip`, and all weigh the same. If all data of one of
them are replaced by any others, its change moves by at most 2 C and the mean by at most 2 C / m. Every entry of the
mean gets normal noise of standard deviation 2 C z / m, z = `protect.central_noise`, so z is the ratio of noise to
sensitivity whatever C and m are. This is central differential privacy of a client's whole data set under
replacement, with who took part known to all: it holds towards those who see broadcasts, not towards the server.

With weights n_i that are numbers of samples, the mean moves by up to 2 C max(a, a') where a and a' are the client's
shares n_i / Σ n before and after: that depends on the data of all, and has no bound that could be stated beforehand. So
weights have to be equal.

The noise enters each change alike: whatever is computed from the mean of the changes alone is computed from the noisy
mean, FedDyn's state too, and the noise is drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..base.rng import Noise
from ..base.tensors import Tensors
from .protections import UPDATE_SENSITIVITY, Protections


def central_noise(protect: Protections, like: Mapping[str, Tensor], clients: int, noise: Noise) -> Tensors:
    """What is added to a mean of changes that look like this one, over so many clients; counters get none."""
    deviation = mean_deviation(protect, clients)
    return {
        name: deviation * noise(tensor.shape) for name, tensor in sorted(like.items()) if tensor.is_floating_point()
    }


def shifted(change: Mapping[str, Tensor], noise: Tensors) -> Mapping[str, Tensor]:
    """A change, or a mean of changes, with the noise."""
    return _Shifted(change, noise)


def mean_deviation(protect: Protections, clients: int) -> float:
    """Standard deviation of the noise on each weight of the mean over so many clients."""
    return UPDATE_SENSITIVITY * protect.update_clip * protect.central_noise / clients


class _Shifted(Mapping[str, Tensor]):
    """Named tensors plus others, added when they are asked for: they may lie on the disk until then."""

    def __init__(self, tensors: Mapping[str, Tensor], shift: Tensors) -> None:
        self.tensors, self.shift = tensors, shift

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        return tensor.to(torch.float64) + self.shift[name] if name in self.shift else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)
