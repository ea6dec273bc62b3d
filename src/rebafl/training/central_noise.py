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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..algorithms.aggregate import Means, Upload
from ..base.rng import Noise
from ..base.tensors import Tensors
from .protections import UPDATE_SENSITIVITY, Protections


def with_central_noise(protect: Protections, uploads: Sequence[Upload], clients: int, noise: Noise) -> list[Upload]:
    """The uploads with one and the same noise in each change; the mean is over so many clients."""
    if not protect.central_noise or not uploads:
        return list(uploads)
    drawn = _drawn(protect, uploads[0].change, clients, noise)
    return [replace(upload, change=_Shifted(upload.change, drawn)) for upload in uploads]


def means_with_central_noise(protect: Protections, means: Means, like: Mapping[str, Tensor], noise: Noise) -> Means:
    """The same noise on the means themselves, where no upload is known; `like` has the types of what was uploaded."""
    if not protect.central_noise:
        return means
    drawn = _drawn(protect, like, means.uploads, noise)
    return replace(means, change=dict(_Shifted(means.change, drawn)))


def _drawn(protect: Protections, like: Mapping[str, Tensor], clients: int, noise: Noise) -> Tensors:
    deviation = mean_deviation(protect, clients)
    return {name: deviation * noise(t.shape) for name, t in sorted(like.items()) if t.is_floating_point()}


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
