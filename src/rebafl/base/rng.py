"""Where do random numbers come from? From (seed, purpose, round, client), and from nowhere else.

No draw depends on how many draws came before it elsewhere, so neither the number of workers, nor the
order in which clients are trained, nor a restart can change a result.

One exception: noise that protects a real client comes from the operating system, since whoever knows a seed can
subtract what was drawn from it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

NoiseSource = Literal["seed", "system"]
Noise = Callable[[Sequence[int]], Tensor]
"""A shape -> independent standard normal numbers in float64, new ones at each call."""


def key(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """128 bits that differ whenever one of the four does."""
    text = f"{seed}/{purpose}/{round}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """An independent stream for this purpose, round and client."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, round, client)))


@contextmanager
def torch_stream(seed: int, purpose: str, round: int = 0, client: int = 0, device: str = "cpu") -> Iterator[None]:
    """Give torch's own generator such a stream for a while, then put it back as it was; that of a device as well.

    Layers like dropout, and the initialisation of most modules, can draw from nothing else.
    """
    start = key(seed, purpose, round, client) % 2**63
    kind, _, number = device.partition(":")
    with ExitStack() as streams:
        streams.enter_context(torch.random.fork_rng(devices=[]))
        torch.default_generator.manual_seed(start)
        if kind in ("cuda", "mps"):
            streams.enter_context(torch.random.fork_rng(devices=[int(number or 0)], device_type=kind))
            torch.get_device_module(kind).manual_seed(start)
        yield


def seeded_noise(seed: int, round: int, client: int) -> Noise:
    """Noise of a simulation: the same whenever this client's round is computed again."""
    random = generator(seed, "protect", round, client)
    return lambda shape: torch.from_numpy(random.standard_normal(tuple(shape)))


def system_noise(shape: Sequence[int]) -> Tensor:
    """Noise from the operating system's generator, made normal by Box and Muller's transform."""
    count = int(np.prod(shape, dtype=np.int64))
    bits = np.frombuffer(bytearray(os.urandom(16 * count)), dtype=np.uint64).reshape(2, count)
    radius, angle = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53  # in (0, 1): the logarithm is finite
    normal = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return torch.from_numpy(normal.reshape(tuple(shape)))
