"""Damaged copies of a file's bytes."""

import random

TAIL = 100  # bytes at the end, where the seal is: all of their bits are tried


def flips(data, count=300):
    """Damaged copies: each bit of the last bytes, and some of all others."""
    tail = range(8 * max(0, len(data) - TAIL), 8 * len(data))
    chosen = {*tail, *(random.Random(1).randrange(8 * len(data)) for _ in range(count))}
    for bit in sorted(chosen):
        copy = bytearray(data)
        copy[bit // 8] ^= 1 << bit % 8
        yield bytes(copy)
