"""What may training take of the machine? One thread for each client, and memory that is kept rather than given back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread for a while: sums depend in their last bits on how threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


def keep_memory() -> None:
    """Let glibc keep what this process frees, up to a gigabyte, for its next allocation.

    Left alone it may hand the activations of every step back to the kernel and fetch empty pages again:
    hundreds of page faults per step, up to a fifth of the time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library than glibc
        for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**30), (M_TOP_PAD, 2**26)):
            mallopt(option, size)
