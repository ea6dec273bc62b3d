"""How are replies fetched so that no node can hold up the server, or fill it up?

A node announces its reply as a tree of objects and uploads them one by one. Flower's grid, once it has seen such
a tree, waits until the last object is there: a node that dies or dawdles in mid-upload would keep a round open.
Here each reply is looked at by itself, in a thread that nobody waits for: one look takes the objects that are
there and leaves the rest to the next look. A reply with too many objects, or too large, is refused as soon as
that shows. What a look brings after its round is closed is dropped.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import httpx
from flwr.app import Array, Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import RunNotRunningException

POLL = 1.0  # seconds between two looks at the same reply
CLOSING = 1.0  # seconds that the last looks, begun at the deadline, may take
WORKERS = 16  # looks at the same time; one that hangs keeps a worker busy, and no other look
TRIES = 10  # looks in a row that the SuperLink may fail at one reply
SPARE = 2**20  # bytes, for what comes beside the tensors


class Refused(Exception):
    """A reply that is not taken, and why."""


@dataclass(frozen=True)
class Limit:
    """How much a reply may hold, on the wire and unpacked."""

    bytes: int = SPARE
    objects: int = 1000

    @classmethod
    def around(cls, bytes: int, tensors: int) -> Limit:
        """Twice what is expected, and some room for what Flower wraps around it."""
        most = 2 * bytes + SPARE
        return cls(most, cls.objects + 4 * tensors + most // 2**16)


class Parcel(Protocol):
    """The reply to one message, on its way."""

    key: int
    dropped: bool
    failures: int

    def look(self) -> Message | None:
        """The reply if it is there; must not wait for what is not."""
        ...


class Whole:
    """The reply on a grid that hands it over in one piece, as Flower's simulation does."""

    def __init__(self, grid: Grid, key: int, sent: str) -> None:
        self.grid, self.key, self.sent = grid, key, sent
        self.dropped, self.failures = False, 0

    def look(self) -> Message | None:
        return next(iter(self.grid.pull_messages([self.sent])), None)


class InParts:
    """The reply on a SuperLink, which forgets that it announced a reply once it has."""

    def __init__(self, grid: Any, key: int, sent: str, limit: Limit) -> None:
        self.client, self.node, self.run = grid._runtime_client, grid.node, grid.run.run_id
        self.key, self.sent, self.limit = key, sent, limit
        self.dropped, self.failures = False, 0
        self.message = ""
        self.missing: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.size = 0

    def look(self) -> Message | None:
        if not self.message and not self._announced():
            return None
        try:
            if not self._gathered():
                return None
            self._check_unpacked()
        except Refused:
            with suppress(httpx.HTTPError):
                self._confirm()
            raise
        self._confirm()
        reply = inflate_object_from_contents(self.message, self.contents)
        if not isinstance(reply, Message):
            raise Refused("the reply is no message")
        return reply

    def _announced(self) -> bool:
        found = self.client.PullMessages(PullAppMessagesRequest(message_ids=[self.sent]))
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == self.sent:
                names = list(islice((each.object_id for each in iterate_object_tree(tree)), self.limit.objects + 1))
                if len(names) > self.limit.objects:
                    raise Refused(f"the reply announces more than {self.limit.objects} objects")
                self.message, self.missing = message.metadata.message_id, list(dict.fromkeys(names))
                return True
        return False

    def _gathered(self) -> bool:
        """Take the objects that are there, in the order of upload; is that all?"""
        while self.missing and not self.dropped:
            name = self.missing[0]
            found = self.client.PullObject(PullObjectRequest(node=self.node, run_id=self.run, object_id=name))
            if not found.object_found:
                raise Refused("the reply was never uploaded completely")
            if not found.object_available:
                return False
            self.size += len(found.object_content)
            if self.size > self.limit.bytes:
                raise Refused(f"the reply holds more than {self.limit.bytes} bytes")
            self.contents[name] = found.object_content
            del self.missing[0]
        return not self.missing

    def _check_unpacked(self) -> None:
        """An array may name one chunk again and again, and be far larger than what was sent."""
        size = 0
        for content in self.contents.values():
            kind, children, _ = get_object_head_values_from_object_content(content)
            if kind == Array.__qualname__:
                chunks = json.loads(get_object_body(content, Array))["arraychunk_ids"]
                size += sum(len(self.contents[children[number]]) for number in chunks)
        if size > self.limit.bytes:
            raise Refused(f"the reply unpacks to {size} bytes, more than {self.limit.bytes}")

    def _confirm(self) -> None:
        """The SuperLink need not keep it any longer."""
        request = ConfirmMessageReceivedRequest(node=self.node, run_id=self.run, message_object_id=self.message)
        self.client.ConfirmMessageReceived(request)


def parcel(grid: Grid, key: int, sent: str, limit: Limit) -> Parcel:
    return InParts(grid, key, sent, limit) if hasattr(grid, "_runtime_client") else Whole(grid, key, sent)


def fetched(grid: Grid, sent: Mapping[str, int], until: float, limit: Limit) -> Iterator[tuple[int, Message | Refused]]:
    """The replies to these messages (id -> key) as they come, until a time of `time.monotonic` and a little longer."""
    parcels = [parcel(grid, key, sent_id, limit) for sent_id, key in sent.items()]
    todo: SimpleQueue[Parcel | None] = SimpleQueue()
    done: SimpleQueue[tuple[Parcel, Message | Refused | None]] = SimpleQueue()
    workers = [threading.Thread(target=_work, args=(todo, done), daemon=True) for _ in parcels[:WORKERS]]
    for worker in workers:
        worker.start()
    idle, busy = parcels, 0
    try:
        while idle or busy:
            last = time.monotonic() >= until
            again = until + CLOSING if last else min(time.monotonic() + POLL, until)
            for each in idle:
                todo.put(each)
            idle, busy = [], busy + len(idle)
            while busy and (left := again - time.monotonic()) > 0:
                try:
                    each, found = done.get(timeout=left)
                except Empty:
                    break
                busy -= 1
                if found is None:
                    idle.append(each)
                else:
                    yield each.key, found
            if last:
                return
            if idle:
                time.sleep(max(0.0, again - time.monotonic()))
    finally:
        for each in parcels:
            each.dropped = True
        for _ in workers:
            todo.put(None)


def _work(todo: SimpleQueue[Parcel | None], done: SimpleQueue[tuple[Parcel, Message | Refused | None]]) -> None:
    while (each := todo.get()) is not None:
        if not each.dropped:
            done.put((each, _looked(each)))


def _looked(each: Parcel) -> Message | Refused | None:
    """What a look brought; only a SuperLink that does not answer at all is not the node's fault."""
    try:
        found = each.look()
        each.failures = 0
        return found
    except Refused as refused:
        return refused
    except httpx.HTTPStatusError as error:
        each.failures += 1
        if each.failures < TRIES:
            return None
        return Refused(f"the SuperLink fails at the reply (HTTP status {error.response.status_code})")
    except (httpx.TransportError, OSError, RunNotRunningException):
        return None  # whoever asks next will notice, if it persists
    except Exception as error:  # a node may send anything
        return Refused(f"the reply cannot be read ({type(error).__name__}: {error})")
