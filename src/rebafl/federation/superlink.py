"""Who may talk to the server? This starts Flower's SuperLink so that other machines reach nothing but its Fleet API.

Flower serves three interfaces on one port. The Fleet API, for nodes, checks each request's signature; the others,
which submit runs and add keys, ask nobody who they are. So those are left to this machine. And what a node sends has a
largest size: Flower would take anything, and a reply that announces some thousand objects would block its database
for everybody. A reply is announced with about as many bytes as the order it answers. Once the SuperLink is up,
exactly the keys of the allow-list are registered with it (one taken off the list is removed), and the run that was
asked for last goes on.

    python -m rebafl.federation.superlink SERVER-FOLDER <options of flower-superlink>
"""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from .app.server.members import read_keys
from .ops.control import Link, register
from .ops.layout import ALLOWED
from .ops.submission import go_on

FLEET = "/v1/fleet/"
ORDERS, REPLIES = "/v1/runtime/push-messages", "/v1/fleet/push-messages"
MOST = 32 * 2**20  # bytes of a node's request; Flower's nodes cut arrays into chunks of 5 MB
SPARE = 16 * 2**10  # bytes by which a reply's announcement may be longer than twice the longest order's
GUARD = 60.0  # seconds within which the guard must be in place
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App) -> App:
    """The same application, but for peers elsewhere only its Fleet API exists, and that takes no huge requests."""
    longest_order = 0

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal longest_order
        path, said = scope.get("path", ""), length(scope)
        fleet = path.startswith(FLEET)
        most = 2 * longest_order + SPARE if path == REPLIES else MOST
        if scope["type"] == "http" and fleet and not 0 <= said <= most:
            await refuse(send, 413, b"too large, or of unknown size")
        elif scope["type"] == "lifespan" or is_here(scope) or fleet:
            if path == ORDERS:
                longest_order = max(longest_order, said)
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(send, 403, b"only for nodes")

    return serve


async def refuse(send: Send, status: int, reason: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": reason})


def length(scope: Scope) -> int:
    """How long a request says it is, to which the HTTP server holds it; -1 if it does not say."""
    said = dict(scope.get("headers") or []).get(b"content-length", b"")
    return int(said) if said.isdigit() and len(said) < 12 else -1


def is_here(scope: Scope) -> bool:
    """Does the connection come from this machine? Its own address cannot be forged over TCP."""
    peer = (scope.get("client") or ("",))[0]
    try:
        return ipaddress.ip_address(peer).is_loopback or peer == (scope.get("server") or ("",))[0]
    except ValueError:
        return False


def _look_after(folder: Path, port: int, allowed: dict[int, bytes]) -> None:
    """Beside the SuperLink, once it answers: the keys, then the run."""
    register(Link(f"127.0.0.1:{port}", folder / "ca.crt"), allowed)
    print(f"{len(allowed)} node keys are registered.", file=sys.stderr, flush=True)
    go_on(folder, port)


def _end_unguarded(served: threading.Event) -> None:
    """A Flower that serves in another way would do so without the guard: rather not at all."""
    if not served.wait(GUARD):
        print("This version of Flower cannot be guarded; install flwr 1.41.", file=sys.stderr, flush=True)
        os._exit(2)


def main() -> None:
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    folder = Path(sys.argv.pop(1)).resolve()
    allowed = read_keys(folder / ALLOWED)
    serve, served = uvicorn.run, threading.Event()

    def run(app: App, **options: Any) -> None:
        served.set()
        threading.Thread(target=_look_after, args=(folder, options["port"], allowed), daemon=True).start()
        serve(guarded(app), **options)

    setattr(uvicorn, "run", run)
    threading.Thread(target=_end_unguarded, args=(served,), daemon=True).start()
    flower_superlink()


if __name__ == "__main__":
    main()
