"""How are SuperLink and SuperNode started? Each with a guard around what it serves."""

from __future__ import annotations

import inspect
import os
import ssl
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ..guard import App, Scope, guarded, secret_only
from ..stored import Ledger
from ..watch import follow
from .apps import answer_for_dead_apps
from .installed import FLOWER
from .storing import bound_members, keep_dropping_expired

GUARD_SECONDS = 60.0  # within which the guard must be in place


def start_superlink(once_served: Callable[[int], None], secret: bytes, is_member: Callable[[bytes], bool]) -> None:
    """Run `flower-superlink`, with its options in `sys.argv`, and the guard around the application it serves.

    Flower hands its application to `uvicorn.run`, which is replaced. `once_served` hears the port, in a thread. What
    a proxy says about addresses is not believed. A certificate that is replaced is used for the next connection.
    """
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    run, served = uvicorn.run, threading.Event()
    if not {"app", "port", "proxy_headers", "ssl_context_factory"} <= inspect.signature(run).parameters.keys():
        raise UserError(f"uvicorn {version('uvicorn')} cannot be guarded; install the one that flwr {FLOWER} asks for.")

    def member(scope: Scope) -> bytes | None:
        return signer(scope, is_member)

    def run_guarded(app: Any, **options: Any) -> None:
        served.set()
        threading.Thread(target=keep_dropping_expired, args=(app.state.linkstate_factory.state,), daemon=True).start()
        threading.Thread(target=once_served, args=(options["port"],), daemon=True).start()
        changed = {"proxy_headers": False, "ssl_context_factory": _renewing}
        run(guarded(app, secret, member), **{**options, **changed})

    setattr(uvicorn, "run", run_guarded)
    threading.Thread(target=_end_unguarded, args=(served, "SuperLink"), daemon=True).start()
    bound_members(Ledger())
    flower_superlink()


def start_supernode(secret: bytes) -> None:
    """Run `flower-supernode`, with its options in `sys.argv`; what it serves on this machine needs the secret.

    Flower hands its application to `uvicorn.Config`, which is replaced.
    """
    import uvicorn
    from flwr.supernode.cli.flower_supernode import flower_supernode

    configure, served = uvicorn.Config, threading.Event()
    if not {"app", "proxy_headers"} <= inspect.signature(configure).parameters.keys():
        raise UserError(f"uvicorn {version('uvicorn')} cannot be guarded; install the one that flwr {FLOWER} asks for.")

    def configure_guarded(app: App, **options: Any) -> Any:
        served.set()
        return configure(secret_only(app, secret), **{**options, "proxy_headers": False})

    setattr(uvicorn, "Config", configure_guarded)
    threading.Thread(target=_end_unguarded, args=(served, "SuperNode"), daemon=True).start()
    answer_for_dead_apps()
    flower_supernode()


def _end_unguarded(served: threading.Event, name: str) -> None:
    """A process that serves in any other way would do so without the guard: it ends instead."""
    if not served.wait(GUARD_SECONDS):
        print(f"This {name} cannot be guarded; install flwr {FLOWER}.", file=sys.stderr, flush=True)
        os._exit(2)


def _renewing(config: Any, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """uvicorn's context for TLS, which loads its certificate again whenever that was replaced."""
    context, files = make(), (Path(config.ssl_certfile), Path(config.ssl_keyfile))

    def load() -> bool:
        try:
            context.load_cert_chain(*files)
        except (OSError, ssl.SSLError):  # the other file of the two comes in a moment
            return False
        print("The new certificate is used from now on.", file=sys.stderr, flush=True)
        return True

    follow(files, load)
    return context


def signer(scope: Scope, is_member: Callable[[bytes], bool]) -> bytes | None:
    """The public key of the member that has just signed this request; Flower asks the same, once it has received it."""
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    headers = dict(scope.get("headers") or [])
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
        stamp = headers[TIMESTAMP_HEADER.encode()].decode("ascii")
        age = (now() - datetime.fromisoformat(stamp)).total_seconds()
        if not is_member(key) or not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        return key if verify_signature(bytes_to_public_key(key), stamp.encode(), signature) else None
    except (KeyError, ValueError, TypeError):
        return None
