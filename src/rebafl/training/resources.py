"""What may training take of the machine? One thread for each client, and memory that is kept rather than given back."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..base.errors import UserError

_set_threads = torch.set_num_threads
_guard = threading.Lock()
_inside = 0  # how many want one thread now


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread for a while: sums depend in their last bits on how threads share them.

    Own code that asks torch for more is not heard meanwhile: a worker that was forked from a process in which torch
    computed in several threads would wait for those threads, which it has not, for ever.
    """
    before = torch.get_num_threads()
    _count(1)
    _set_threads(1)
    try:
        yield
        if torch.get_num_threads() != 1:
            raise UserError(
                "Own code (the model or the algorithm) made torch compute in several threads, which changes bits and "
                "blocks workers; remove its call of set_num_threads."
            )
    finally:
        _count(-1)
        _set_threads(before)


def stay_with_one_thread() -> None:
    """The same for the rest of a worker's life."""
    _count(1)
    _set_threads(1)


def _count(step: int) -> None:
    global _inside
    with _guard:
        _inside += step
        setattr(torch, "set_num_threads", _stay_at_one if _inside else _set_threads)


def _stay_at_one(threads: int) -> None:
    _set_threads(1)


def _forget() -> None:
    """A forked worker has its parent's count, and maybe its locked lock."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forget)


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
