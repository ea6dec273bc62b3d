"""Where do random numbers come from? From (seed, purpose, round, client), and from nowhere else.

No draw depends on how many draws came before it elsewhere, so neither the number of workers, nor the
order in which clients are trained, nor a restart can change a result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def key(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """128 bits that differ whenever one of the four does."""
    text = f"{seed}/{purpose}/{round}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """An independent stream for this purpose, round and client."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, round, client)))


@contextmanager
def torch_stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> Iterator[None]:
    """Give torch's own generator such a stream for a while, then put it back as it was.

    Layers like dropout, and the initialisation of most modules, can draw from nothing else.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(seed, purpose, round, client) % 2**63)
        yield
