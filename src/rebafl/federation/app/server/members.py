"""Which connected node is which client? The SuperLink knows a node by its key; nothing a message says counts.

With a members file, a client's number belongs to a public key, and nodes with other keys are never asked. Without one,
for simulations and for trials among trusted machines, a node is asked once which part of the data it holds. The table
of these claims is kept in the run directory; a number whose node is connected is never given to another one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from ....base.errors import UserError
from ....base.files import write_whole
from ....base.sealed import seal, unseal
from ...watch import state_of
from ..member_keys import read_keys
from ..node_config import OWN_DATA

log = logging.getLogger("flwr")

QUESTIONS = 3  # how often a node is asked which part it holds: each time, all wait for its answer
CLAIMS = "members.json"  # in the run directory


class Node(Protocol):
    """What is used of Flower's NodeInfo."""

    node_id: int
    public_key: bytes


class Members(Protocol):
    """Who is who."""

    def clients(self, nodes: Iterable[Node]) -> dict[int, int]:
        """Client -> node id, for the clients among these connected nodes."""
        ...


Introduce = Callable[[list[int]], Mapping[int, int | None]]
"""Node ids -> the part of the data that each says it holds; None if it did not say."""


def fingerprint(node: Node) -> str:
    """A node's key in short; nodes of Flower's own simulation have none."""
    return hashlib.sha256(node.public_key).hexdigest() if node.public_key else f"node {node.node_id}"


def read_members(path: Path, clients: int) -> dict[str, int]:
    """Fingerprint -> client, from a members file."""
    numbers: dict[str, int] = {}
    for client, key in read_keys(path).items():
        if client >= clients:
            log.warning("Client %s has a key, but this run is one of %s clients: it is not asked.", client, clients)
            continue
        short = hashlib.sha256(key).hexdigest()
        if short in numbers:
            raise UserError(f"{path}: clients {numbers[short]} and {client} have the same key; give each its own.")
        numbers[short] = client
    return numbers


class MembersByKey:
    """Client numbers that belong to keys, by a members file as it is now: nodes come and go, and get new keys."""

    def __init__(self, path: Path, clients: int) -> None:
        self.path, self.count = path, clients
        self.seen = state_of([path])
        self.numbers, self.keys = read_members(path, clients), read_keys(path)
        self.strangers: set[str] = set()

    def clients(self, nodes: Iterable[Node]) -> dict[int, int]:
        self._follow()
        connected = {}
        for node in nodes:
            key = fingerprint(node)
            if key in self.numbers:
                connected[self.numbers[key]] = node.node_id
            elif key not in self.strangers:
                self.strangers.add(key)
                log.warning("Node %s is not in the members file and will not be asked.", node.node_id)
        return connected

    def _follow(self) -> None:
        """What the file says now; what it said before, if it cannot be read."""
        if (now := state_of([self.path])) != self.seen:
            self.seen = now
            try:
                self.numbers, self.keys = read_members(self.path, self.count), read_keys(self.path)
            except UserError as error:
                log.warning("%s Until then the members are those of before.", error)


class MembersByClaim:
    """Client numbers that nodes claim at the first contact; the first node that claims a number has it."""

    def __init__(self, file: Path, clients: int, introduce: Introduce) -> None:
        self.file, self.count, self.introduce = file, clients, introduce
        self.holders = self._read()
        self.claims: dict[str, int] = {}
        self.questions: Counter[str] = Counter()

    def clients(self, nodes: Iterable[Node]) -> dict[int, int]:
        connected = {fingerprint(node): node.node_id for node in nodes}
        held = set(self.holders.values())
        known = held | self.claims.keys() | {key for key, asked in self.questions.items() if asked >= QUESTIONS}
        if strangers := {key: node for key, node in connected.items() if key not in known}:
            self.questions.update(strangers.keys())
            answers = self.introduce(list(strangers.values()))
            self.claims |= {key: part for key, node in strangers.items() if (part := answers.get(node)) is not None}
        before = dict(self.holders)
        new = connected.keys() & self.claims.keys() - held
        for key in sorted(new, key=lambda key: (self.claims[key] == OWN_DATA, self.claims[key], key)):
            self._assign(key, connected)
        if self.holders != before:
            write_whole(self.file, seal(json.dumps({str(n): key for n, key in sorted(self.holders.items())}, indent=1)))
        return {number: connected[key] for number, key in self.holders.items() if key in connected}

    def _assign(self, key: str, connected: Mapping[str, int]) -> None:
        """Give a node the number that it claims, or any free one if it has its own data."""
        claim = self.claims[key]
        wanted = range(self.count) if claim == OWN_DATA else [claim]
        free = [n for n in wanted if n not in self.holders] or [n for n in wanted if self.holders[n] not in connected]
        if claim >= self.count or claim < OWN_DATA:
            log.warning("Node %s says it is client %s; there are %s.", connected[key], claim, self.count)
        elif free:
            self.holders[free[0]] = key
        else:
            log.warning("Node %s says it is client %s, which another node is; not asked.", connected[key], claim)

    def _read(self) -> dict[int, str]:
        try:
            entries, _ = unseal(self.file.read_bytes())
            return {int(number): str(key) for number, key in entries.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UserError(f"{self.file} is damaged ({error}); remove it, and nodes are asked again.") from None
