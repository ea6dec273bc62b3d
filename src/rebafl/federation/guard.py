"""Who may ask a server or a node for what, and how much at once? An application around that which Flower serves.

Flower 1.41 serves three interfaces on the server's port. The Fleet API, for nodes, checks each request's signature. The
Runtime API, for apps, gives its work to whoever asks, and the Control API, which submits runs and adds keys, does not
authenticate anybody. A node serves a Runtime API of its own. Here all of it but the Fleet API needs a secret, which is
in the folder of the machine, where only its owner can read it: other users of the same machine do not have it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

HEADER = "x-rebafl-secret"
FLEET = "/v1/fleet/"
ORDERS, REPLIES = "/v1/runtime/push-messages", "/v1/fleet/push-messages"
MOST_BYTES = 32 * 2**20  # of a node's request; Flower's nodes cut arrays into chunks of 5 MB
SPARE_BYTES = 16 * 2**10  # by which a reply's announcement may be longer than twice the longest order's
MOST_WAITING, MOST_OF_ONE = 512 * 2**20, 64 * 2**20  # bytes of large requests at once: of all, of one member
LARGE = 64 * 2**10
MOST_SECONDS = 120.0  # that a large request may take to arrive

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Member = Callable[[Scope], bytes | None]
"""A request -> the public key of the member that has signed it; None if none has."""


def proof(secret: bytes) -> str:
    """What a request says of the secret. Flower signs with the same secret, so that it is not sent itself."""
    return hmac.new(secret, b"rebafl guard", hashlib.sha256).hexdigest()


def knows(scope: Scope, secret: bytes) -> bool:
    """Does the request come from somebody who has the secret? It says so once."""
    said = [value for name, value in scope.get("headers") or [] if name.lower() == HEADER.encode()]
    return len(said) == 1 and hmac.compare_digest(said[0], proof(secret).encode())


def secret_only(app: App, secret: bytes) -> App:
    """The same application for those who have the secret; for others nothing, and no byte of theirs is received."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or knows(scope, secret):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send, 401, b"only for this machine's own processes")

    return serve


def guarded(app: App, secret: bytes, member: Member) -> App:
    """The server's application: the Fleet API for nodes, without huge requests; all else for those with the secret.

    Other machines reach nothing but the Fleet API, whatever they know. Flower takes requests of any size, and receives
    them before it looks at who has signed them. Here large ones are received from members only, from each only so many
    bytes at the same time, and not for ever. A reply that announces some thousand objects would block Flower's database
    for everybody; an honest one is announced in about as many bytes as the order it answers.
    """
    longest_order = 0
    waiting: Counter[bytes] = Counter()  # bytes of large requests that are being received or answered, by member

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal longest_order, waiting
        path, length = scope.get("path", ""), content_length(scope)
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif scope["type"] != "http":
            return
        elif not path.startswith(FLEET):
            if not is_this_machine(scope):
                await _refuse(send, 403, b"only for nodes")
            elif not knows(scope, secret):
                await _refuse(send, 401, b"only for this machine's own processes")
            else:
                longest_order = max(longest_order, length if path == ORDERS else 0)
                await app(scope, receive, send)
        elif not 0 <= length <= (2 * longest_order + SPARE_BYTES if path == REPLIES else MOST_BYTES):
            await _refuse(send, 413, b"too large, or of unknown size")
        elif length < LARGE:
            await app(scope, receive, send)
        elif (key := member(scope)) is None:
            await _refuse(send, 401, b"only for members")
        elif waiting[key] + length > MOST_OF_ONE or waiting.total() + length > MOST_WAITING:
            await _refuse(send, 503, b"too much at once; try again")  # Flower's nodes do
        else:
            waiting[key] += length
            try:
                await app(scope, in_time(receive), send)
            finally:
                waiting[key] -= length
                waiting += Counter()  # without those that are done

    return serve


def in_time(receive: Receive) -> Receive:
    """The same, but a request that has not arrived after a while counts as one whose sender has gone."""
    until = time.monotonic() + MOST_SECONDS
    more = True

    async def next_part() -> Any:
        nonlocal more
        if not more:  # all of it is here; what may still come is that the sender goes
            return await receive()
        try:
            part = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
        except asyncio.TimeoutError:
            return {"type": "http.disconnect"}
        more = part.get("more_body", False)
        return part

    return next_part


async def _refuse(send: Send, status: int, reason: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": reason})


def content_length(scope: Scope) -> int:
    """How long a request says it is, which uvicorn enforces; -1 if it does not say."""
    text = dict(scope.get("headers") or []).get(b"content-length", b"")
    return int(text) if text.isdigit() and len(text) < 12 else -1


def is_this_machine(scope: Scope) -> bool:
    """Does the connection come from this machine? Its own address cannot be forged over TCP."""
    peer = (scope.get("client") or ("",))[0]
    try:
        return ipaddress.ip_address(peer).is_loopback or peer == (scope.get("server") or ("",))[0]
    except ValueError:
        return False
