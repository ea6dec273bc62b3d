"""How are connected nodes asked, and who answered? Messages go out together; replies are taken until a deadline.

Replies are looked for by the message they answer, and those of earlier rounds are not looked for any more: a
straggler's upload cannot get into a later round. Whatever a node does, it costs that node's reply and nothing else.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ....base.errors import UserError
from ...flower_changes import GONE, send
from ..node_config import PARTITION_ID
from ..options import Options
from ..records import NOTE, shown
from .fetch import Limit, Refused, fetch_replies
from .members import Members

log = logging.getLogger("flwr")

POLL = 1.0  # seconds between two looks for connected nodes
GRACE = 10.0  # seconds that a message outlives its deadline, so that the last poll still finds its reply

Use = Callable[[int, Message], None]
"""Receives each reply as it comes: the client or node, and what it answered."""


@dataclass
class Answers:
    """Who answered, why others did not, and whose reply could not even be read; by client or node."""

    replied: set[int] = field(default_factory=set)
    missing: dict[int, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def includes(self, key: int) -> bool:
        return key in self.replied or key in self.missing or key in self.broken

    def add(self, key: int, reply: Message | Refused, asked: Message, use: Use) -> None:
        """What was fetched in reply to this message."""
        if isinstance(reply, Refused):
            self.broken[key] = shown(str(reply))
        elif reply.has_error() and reply.error.code in GONE:
            self.missing[key] = f"the node or its reply is gone (Flower's error {reply.error.code})"
        elif reply.has_error():
            self.broken[key] = shown(f"its app failed with Flower's error {reply.error.code}: {reply.error.reason}")
        elif reason := _not_an_answer(reply, asked):
            self.broken[key] = shown(reason)
        else:
            self.replied.add(key)
            use(key, reply)


def ask(grid: Grid, messages: Mapping[int, Message], deadline: float, limit: Limit, use: Use) -> Answers:
    """Send these messages and pass on the replies that come before the deadline, in seconds from now."""
    until = time.monotonic() + deadline
    answers = Answers()
    sent: dict[str, int] = {}
    for key, message in messages.items():
        if sent_id := send(grid, message):
            sent[sent_id] = key
        else:
            answers.missing[key] = "the message could not be sent"
    for key, reply in fetch_replies(grid, sent, until, limit):
        answers.add(key, reply, messages[key], use)
    if silent := [key for key in sent.values() if not answers.includes(key)]:
        grid.get_nodes()  # raises if the SuperLink itself does not answer: then no node is to blame for its silence
        answers.missing |= dict.fromkeys(silent, f"no complete reply within {deadline:g} s")
    answers.missing = dict(sorted(answers.missing.items()))
    return answers


def message_to(node: int, content: RecordDict, kind: str, group: str, deadline: float) -> Message:
    return Message(content, node, kind, ttl=deadline + GRACE, group_id=group)


def wait_for_clients(grid: Grid, members: Members, chosen: Sequence[int], options: Options) -> dict[int, int]:
    """The chosen clients that are connected, and their nodes; waits until enough nodes are, but not for ever.

    If enough are connected but none of the chosen, these count as away once the deadline has passed.
    """
    began, wanted = time.monotonic(), options.min_nodes
    logged = False
    while True:
        connected = members.clients(grid.get_nodes())
        asked = {client: connected[client] for client in sorted(chosen) if client in connected}
        if len(connected) >= wanted and (asked or time.monotonic() >= began + options.deadline):
            return asked
        if len(connected) < wanted and time.monotonic() >= began + options.wait:
            raise UserError(
                f"Only {len(connected)} of at least {wanted} nodes were connected after {options.wait:g} s; "
                "start more nodes, or lower min-nodes, and run the same command again to resume."
            )
        if not logged:
            log.info("Waiting for nodes: %s of at least %s are connected.", len(connected), wanted)
            logged = True
        time.sleep(POLL)


def introductions(grid: Grid, nodes: list[int], deadline: float) -> dict[int, int | None]:
    """Node id -> the part of the data set that the node says it holds; None if it does not say."""
    log.info("Asking %s new nodes which part of the data they hold.", len(nodes))
    claims: dict[int, int | None] = {}

    def use(node: int, reply: Message) -> None:
        claims[node] = _partition_id(reply)

    queries = {node: message_to(node, RecordDict(), "query", "0", deadline) for node in nodes}
    ask(grid, queries, deadline, Limit(), use)
    return claims


def _partition_id(reply: Message) -> int | None:
    note = reply.content.config_records.get(NOTE) if set(reply.content) == {NOTE} else None
    part = note.get(PARTITION_ID) if note else None
    return part if type(part) is int else None


def _not_an_answer(reply: Message, asked: Message) -> str | None:
    """Why a reply is not the answer to this message, or None."""
    actual, expected = reply.metadata, asked.metadata
    if actual.src_node_id != expected.dst_node_id:
        return "the reply came from another node"
    if actual.reply_to_message_id != expected.message_id:
        return "the reply answers another message"
    if (actual.message_type, actual.group_id) != (expected.message_type, expected.group_id):
        return f"the reply is of type {actual.message_type!r:.40} and group {actual.group_id!r:.40}"
    if not (math.isfinite(actual.created_at) and math.isfinite(actual.ttl) and actual.ttl > 0):
        return f"the reply is of time {actual.created_at} and lasts {actual.ttl} s"
    return None if reply.has_content() else "the reply is empty"
