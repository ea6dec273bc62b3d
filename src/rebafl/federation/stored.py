"""How much may one member have stored at the server? One reply, of a few times the size of the largest order.

A node announces its reply as a tree of objects, and the SuperLink stores what is uploaded under these names. Flower
bounds neither their size nor how many replies of one node wait for somebody who fetches them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

TIMES, SPARE = (
    4,
    4 * 2**20,
)  # a reply may have so many times the bytes of an order, and some more; masked ones have twice


@dataclass
class StoredReply:
    """What one member has stored for one order: by session, under the root of its tree."""

    session: str
    root: str
    bytes: int = 0


class Ledger:
    """Who has stored how much. Nodes are known by the number that Flower has checked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.largest_order = 0
        self.orders: dict[int, dict[str, int]] = {}
        self.replies: dict[int, StoredReply] = {}

    @property
    def most(self) -> int:
        """Bytes that a member may have stored."""
        return TIMES * self.largest_order + SPARE

    def order_given(self, node: int, parts: Iterable[str]) -> None:
        """A node has been told of an order, which has these parts."""
        with self.lock:
            self.orders[node] = dict.fromkeys(parts, 0)

    def part_given(self, node: int, name: str, size: int) -> None:
        """A node has fetched an object. Only what the server has put into the order makes it larger, and only once."""
        with self.lock:
            parts = self.orders.get(node, {})
            if name in parts:
                parts[name] = size
                self.largest_order = max(self.largest_order, sum(parts.values()))

    def begin(self, node: int, session: str, root: str) -> StoredReply | None:
        """A node announces a reply; the earlier one, in place of which it is stored."""
        with self.lock:
            before = self.replies.get(node)
            self.replies[node] = StoredReply(session, root)
            return before if before is not None and before.root != root else None

    def refuses(self, node: int, session: str, size: int) -> StoredReply | None:
        """None if a node may store so many bytes more in this session; else what it has stored, which is to be dropped.

        The reply of a session that is not the node's own is empty.
        """
        with self.lock:
            reply = self.replies.get(node)
            if reply is None or reply.session != session:
                return StoredReply(session, "")
            reply.bytes += size
            if reply.bytes <= self.most:
                return None
            return self.replies.pop(node)
