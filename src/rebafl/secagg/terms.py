"""What must all have agreed on before a round? Who takes part with which key, how many must stay, and what is summed.

The digest of it stands in every message, and clients sign it: a server that tells clients different terms gets no sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric import ec

from .abort import Abort
from .crypto import read_public_key, written
from .fixed_point import Layout
from .messages import EVERYONE, MOST_CLIENTS, Message, Signed


@dataclass(frozen=True)
class Terms:
    """`keys` are the long-term public keys (PEM) of the clients that are asked.

    `round_id` must never be used for two sums of the same client: two sums over different survivors give a client's
    input away by subtraction. `threshold` clients must stay to the end; more than half, so that a server cannot have
    two groups agree to two different lists.
    """

    round_id: bytes
    keys: Mapping[int, bytes]
    threshold: int
    layout: Layout

    def __post_init__(self) -> None:
        clients = len(self.keys)
        if not 1 <= len(self.round_id) <= 64:
            raise Abort(f"a round id of {len(self.round_id)} bytes; 1 to 64 are possible")
        if not 2 <= clients <= min(MOST_CLIENTS, self.layout.clients):
            raise Abort(f"{clients} clients; 2 to {min(MOST_CLIENTS, self.layout.clients)} are possible")
        if not all(0 <= client < EVERYONE for client in self.keys):
            raise Abort("a client's number is out of range")
        if not clients < 2 * self.threshold <= 2 * clients:
            raise Abort(f"a threshold of {self.threshold}; more than half of {clients} clients and not more than all")
        if len({written(key) for key in self.public_keys.values()}) != clients:
            raise Abort("two clients have the same long-term key")

    @cached_property
    def public_keys(self) -> dict[int, ec.EllipticCurvePublicKey]:
        return {client: read_public_key(pem) for client, pem in sorted(self.keys.items())}

    @cached_property
    def tag(self) -> bytes:
        """The digest of all terms."""
        digest = hashlib.sha256(b"rebafl secagg 1 terms")
        pieces = [self.round_id, str(self.threshold).encode(), self.layout.description()]
        for client, key in self.public_keys.items():
            pieces += [str(client).encode(), written(key)]
        for piece in pieces:
            digest.update(len(piece).to_bytes(8, "big") + piece)
        return digest.digest()

    def check_round(self, message: Message) -> None:
        if message.tag != self.tag:
            raise Abort("a message belongs to another round, or to other terms")

    def check_signed(self, message: Signed) -> None:
        """That the message is of this round, and from the client that it names."""
        self.check_round(message)
        key = self.public_keys.get(message.client)
        if key is None or not message.is_signed_by(key):
            raise Abort(f"a message is not signed by client {message.client}")

    def check_enough(self, clients: Collection[int], what: str) -> None:
        if len(clients) < self.threshold:
            raise Abort(f"{len(clients)} clients {what}; at least {self.threshold} are needed")
