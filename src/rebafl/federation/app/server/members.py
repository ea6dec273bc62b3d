"""Which connected node is which client? The SuperLink knows a node by its key; nothing a message says counts.

With a members file, a client's number belongs to a public key, and nodes with other keys are never asked:

    [clients]
    0 = "ecdsa-sha2-nistp384 AAAA…"     # as in an OpenSSH .pub file
    1 = "ecdsa-sha2-nistp384 AAAA…"

Without one, for simulations and for trials among machines one trusts, a node is asked once which part of the
data it holds. The table is kept in the run directory; a number whose node is connected is never given away.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from ....base.config import read_toml
from ....base.errors import UserError
from ....base.files import write_whole
from ....base.sealed import seal, unseal

log = logging.getLogger("flwr")

OWN_DATA = -1  # what a node without a partition-id says
QUESTIONS = 3  # how often a node is asked which part it holds: each time, all wait for its answer
TABLE = "members.json"


class Node(Protocol):
    """What is used of Flower's NodeInfo."""

    node_id: int
    public_key: bytes


Introduce = Callable[[list[int]], Mapping[int, int | None]]
"""Node ids -> the part of the data that each says it holds; None if it did not say."""


def fingerprint(node: Node) -> str:
    """A node's key in short; nodes of Flower's own simulation have none."""
    return hashlib.sha256(node.public_key).hexdigest() if node.public_key else f"node {node.node_id}"


def read_keys(path: Path) -> dict[int, bytes]:
    """Client -> public key (PEM, as the SuperLink shows it), from a members file."""
    entries = read_toml(path).get("clients")
    if not isinstance(entries, dict) or not entries:
        raise UserError(f'{path} must hold a table [clients] with lines such as 0 = "ecdsa-sha2-nistp384 AAAA…".')
    keys: dict[int, bytes] = {}
    for number, text in entries.items():
        if not number.isdecimal():
            raise UserError(f"{path}: {number!r} is no client; they are numbers, counted from 0.")
        try:
            key = load_ssh_public_key(text.encode())
        except (ValueError, UnsupportedAlgorithm, AttributeError) as error:
            raise UserError(f"{path}: the key of client {number} cannot be read ({error}).") from None
        keys[int(number)] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return keys


def read_members(path: Path, clients: int) -> dict[str, int]:
    """Fingerprint -> client, from a members file."""
    found: dict[str, int] = {}
    for client, key in read_keys(path).items():
        if client >= clients:
            raise UserError(f"{path}: there is no client {client}; there are {clients}, counted from 0.")
        short = hashlib.sha256(key).hexdigest()
        if short in found:
            raise UserError(f"{path}: clients {found[short]} and {client} have the same key.")
        found[short] = client
    return found


class Bound:
    """Numbers that belong to keys, by a members file."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers
        self.strangers: set[str] = set()

    def clients(self, nodes: Iterable[Node]) -> dict[int, int]:
        """Client -> node id of those that are connected."""
        found = {}
        for node in nodes:
            key = fingerprint(node)
            if key in self.numbers:
                found[self.numbers[key]] = node.node_id
            elif key not in self.strangers:
                self.strangers.add(key)
                log.warning("Node %s is not in the members file and will not be asked.", node.node_id)
        return found


class Claimed:
    """Numbers that nodes say themselves, at the first contact; the first one to say a number has it."""

    def __init__(self, file: Path, clients: int, introduce: Introduce) -> None:
        self.file, self.count, self.introduce = file, clients, introduce
        self.holders = self._read()
        self.said: dict[str, int] = {}
        self.questions: Counter[str] = Counter()

    def clients(self, nodes: Iterable[Node]) -> dict[int, int]:
        """Client -> node id of those that are connected."""
        there = {fingerprint(node): node.node_id for node in nodes}
        held = set(self.holders.values())
        known = held | self.said.keys() | {key for key, asked in self.questions.items() if asked >= QUESTIONS}
        if strangers := {key: node for key, node in there.items() if key not in known}:
            self.questions.update(strangers.keys())
            answers = self.introduce(list(strangers.values()))
            self.said |= {key: said for key, node in strangers.items() if (said := answers.get(node)) is not None}
        before = dict(self.holders)
        new = there.keys() & self.said.keys() - held
        for key in sorted(new, key=lambda key: (self.said[key] == OWN_DATA, self.said[key], key)):
            self._settle(key, there)
        if self.holders != before:
            write_whole(self.file, seal(json.dumps({str(n): key for n, key in sorted(self.holders.items())}, indent=1)))
        return {number: there[key] for number, key in self.holders.items() if key in there}

    def _settle(self, key: str, there: Mapping[str, int]) -> None:
        said = self.said[key]
        wanted = range(self.count) if said == OWN_DATA else [said]
        free = [n for n in wanted if n not in self.holders] or [n for n in wanted if self.holders[n] not in there]
        if said >= self.count or said < OWN_DATA:
            log.warning("Node %s says it is client %s; there are %s.", there[key], said, self.count)
        elif free:
            self.holders[free[0]] = key
        else:
            log.warning("Node %s says it is client %s, which another node is; not asked.", there[key], said)

    def _read(self) -> dict[int, str]:
        try:
            entries, _ = unseal(self.file.read_bytes())
            return {int(number): str(key) for number, key in entries.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UserError(f"{self.file} is damaged ({error}); remove it, and nodes are asked again.") from None
