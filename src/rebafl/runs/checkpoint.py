"""Which files does a checkpoint consist of? Their names, what the manifest says of them, and which are kept longer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

MANIFEST = "manifest.json"
CLIENT_FILE = re.compile(r"client-(\d+)-(\d+)(?:-([0-9a-f]{32}))?\.safetensors")
SERVER_FILE = re.compile(r"server-(\d+)\.safetensors")
EARLIER_FILE = re.compile(r"manifest-(\d+)\.json")


@dataclass(frozen=True)
class Manifest:
    """What a round left: how far it is, and the digests of all that the next round starts from.

    `rounds` and `server` are SHA-256, `states` is that of the names of all client states, which hold their own;
    `settings` says whose run it is. Runs of earlier versions have none: theirs are empty, and not checked.
    """

    round: int = 0
    bytes: int = 0
    clients: int = 0
    rounds: str = ""
    server: str = ""
    states: str = ""
    settings: str = ""
    best: str = ""
    """SHA-256 of the server after the round that is best on the validation part; empty without such a part."""


COUNTS = ("round", "bytes", "clients")


class ClientState(NamedTuple):
    """The state of a client after a round, as a file whose name holds its digest."""

    client: int
    round: int
    digest: str | None

    @property
    def file(self) -> str:
        ending = f"-{self.digest}" if self.digest else ""  # runs of earlier versions
        return f"client-{self.client}-{self.round}{ending}.safetensors"

    @property
    def mark(self) -> int:
        """A number for the name; those of a set of names, combined by exclusive or, are the set's own."""
        return int.from_bytes(hashlib.sha256(self.file.encode()).digest()[:16], "big")


def mark_of(states: Iterable[ClientState]) -> int:
    """One number for a set of client states, whatever their order; it changes with each that is replaced."""
    mark = 0
    for saved in states:
        mark ^= saved.mark
    return mark


def states_digest(mark: int) -> str:
    return f"{mark:032x}"


def earlier_points(round: int) -> set[int]:
    """Rounds before this one that are kept to go back to: the last two multiples of 1, of 2, of 4, of 8 and so on.

    Few, closer together the nearer they are; and none is wanted again once it was dropped.
    """
    steps = [2**power for power in range(round.bit_length())]
    last = [(round - 1) // step * step for step in steps]
    return {point for point in [*last, *map(sub, last, steps)] if point > 0}
