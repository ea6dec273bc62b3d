"""How are replies fetched so that no node can delay the server, or fill its memory?

A node announces its reply as a tree of objects and uploads them one by one. Each reply is polled by itself, in a
thread that nobody waits for: one poll takes the objects that have arrived and leaves the rest to the next. So a node
that dies or is slow in mid-upload does not keep a round open. A reply with too many objects, or too large, is refused
as soon as that shows. What a poll brings after its round was closed is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Protocol

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from ...flower_changes import ReplyObjects, has_reply_objects, unpacked_bytes

POLL = 1.0  # seconds between two polls of the same reply
CLOSING = 1.0  # seconds that the last polls, begun at the deadline, may take
WORKERS = 16  # polls at the same time; one that hangs occupies one worker, and delays no other poll
TRIES = 10  # polls in a row in which the SuperLink may fail at one reply
SPARE = 2**20  # bytes, for what comes beside the tensors


class Refused(Exception):
    """A reply that is not accepted, and why."""


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


class PendingReply(Protocol):
    """The reply to one message, which may not have arrived yet. `key` is the client or node that was asked."""

    key: int
    abandoned: bool
    failures: int

    def poll(self) -> Message | None:
        """The reply if it has arrived completely; must not wait for it."""
        ...


class WholeReply:
    """A reply on a grid that hands it over in one piece, as Flower's simulation does."""

    def __init__(self, grid: Grid, key: int, sent: str) -> None:
        self.grid, self.key, self.sent = grid, key, sent
        self.abandoned, self.failures = False, 0

    def poll(self) -> Message | None:
        return next(iter(self.grid.pull_messages([self.sent])), None)


class ReplyInParts:
    """A reply on a SuperLink, of which one poll takes what has been uploaded so far."""

    def __init__(self, grid: Grid, key: int, sent: str, limit: Limit) -> None:
        self.objects, self.key, self.limit = ReplyObjects(grid, sent), key, limit
        self.abandoned, self.failures = False, 0
        self.announced = False
        self.missing: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.size = 0

    def poll(self) -> Message | None:
        if not self.announced and not self._is_announced():
            return None
        try:
            if not self._is_complete():
                return None
            if (size := unpacked_bytes(self.contents)) > self.limit.bytes:
                raise Refused(f"the reply unpacks to {size} bytes, more than {self.limit.bytes}")
        except Refused:
            with suppress(httpx.HTTPError):
                self.objects.confirm()
            raise
        self.objects.confirm()
        reply = self.objects.assembled(self.contents)
        if not isinstance(reply, Message):
            raise Refused("the reply is no message")
        return reply

    def _is_announced(self) -> bool:
        """The SuperLink announces a reply once: its objects' names are kept."""
        if (tree := self.objects.announced()) is None:
            return False
        names = list(islice(tree, self.limit.objects + 1))
        if len(names) > self.limit.objects:
            raise Refused(f"the reply announces more than {self.limit.objects} objects")
        self.announced, self.missing = True, list(dict.fromkeys(names))
        return True

    def _is_complete(self) -> bool:
        """Take the objects that have been uploaded, in the order of upload; is that all?"""
        while self.missing and not self.abandoned:
            try:
                content = self.objects.fetch(self.missing[0])
            except LookupError:
                raise Refused("the reply was never uploaded completely") from None
            if content is None:
                return False
            self.size += len(content)
            if self.size > self.limit.bytes:
                raise Refused(f"the reply holds more than {self.limit.bytes} bytes")
            self.contents[self.missing.pop(0)] = content
        return not self.missing


def pending_reply(grid: Grid, key: int, sent: str, limit: Limit) -> PendingReply:
    return ReplyInParts(grid, key, sent, limit) if has_reply_objects(grid) else WholeReply(grid, key, sent)


def fetch_replies(
    grid: Grid, sent: Mapping[str, int], until: float, limit: Limit
) -> Iterator[tuple[int, Message | Refused]]:
    """The replies to these messages (id -> key) as they come, until a time of `time.monotonic` and a little longer."""
    replies = [pending_reply(grid, key, sent_id, limit) for sent_id, key in sent.items()]
    todo: SimpleQueue[PendingReply | None] = SimpleQueue()
    done: SimpleQueue[tuple[PendingReply, Message | Refused | None]] = SimpleQueue()
    workers = [threading.Thread(target=_work, args=(todo, done), daemon=True) for _ in replies[:WORKERS]]
    for worker in workers:
        worker.start()
    idle, busy = replies, 0
    try:
        while idle or busy:
            last = time.monotonic() >= until
            again = until + CLOSING if last else min(time.monotonic() + POLL, until)
            for reply in idle:
                todo.put(reply)
            idle, busy = [], busy + len(idle)
            while busy and (left := again - time.monotonic()) > 0:
                try:
                    reply, result = done.get(timeout=left)
                except Empty:
                    break
                busy -= 1
                if result is None:
                    idle.append(reply)
                else:
                    yield reply.key, result
            if last:
                return
            if idle:
                time.sleep(max(0.0, again - time.monotonic()))
    finally:
        for reply in replies:
            reply.abandoned = True
        for _ in workers:
            todo.put(None)


def _work(
    todo: SimpleQueue[PendingReply | None], done: SimpleQueue[tuple[PendingReply, Message | Refused | None]]
) -> None:
    while (reply := todo.get()) is not None:
        if not reply.abandoned:
            done.put((reply, _polled(reply)))


def _polled(reply: PendingReply) -> Message | Refused | None:
    """What a poll brought; only a SuperLink that does not answer at all is not the node's fault."""
    try:
        message = reply.poll()
        reply.failures = 0
        return message
    except Refused as refused:
        return refused
    except httpx.HTTPStatusError as error:
        reply.failures += 1
        if reply.failures < TRIES:
            return None
        return Refused(f"the SuperLink fails at the reply (HTTP status {error.response.status_code})")
    except (httpx.TransportError, OSError):
        return None  # the next request to the SuperLink will fail too, if it persists
    except Exception as error:  # a node may send anything
        return Refused(f"the reply cannot be read ({type(error).__name__}: {error})")
