"""What is changed in Flower and uvicorn, and which of their private parts are used? All of it is in this module.

Flower promises to keep `flwr.app`, `flwr.clientapp` and `flwr.serverapp`; other modules use nothing else of it. What
is here was written for one version of Flower (which fixes that of uvicorn) and is checked when a process starts.
Flower is imported inside functions: the commands are there, and say how to get it, where it is not installed.

    need_flower             the version
    guarded                 what other machines may ask of the server
    start_superlink         the SuperLink, with that guard around it
    start_superexec         a node's SuperExec, which forks processes instead of starting new ones
    send, ReplyObjects      messages sent one by one, replies fetched in parts
    control_api             which nodes the SuperLink knows
"""

from __future__ import annotations

import importlib
import inspect
import ipaddress
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..base.errors import UserError

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

FLOWER = "1.41"  # the version that all of this was written for; pyproject.toml asks for the same


def need_flower() -> None:
    """Raise unless the right version of Flower is installed."""
    if find_spec("flwr") is None:
        raise UserError("A federation needs Flower; install it with: pip install 'rebafl[flower]'")
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        installed = "of unknown version"
    if installed != FLOWER and not installed.startswith(f"{FLOWER}."):
        raise UserError(
            f"A federation needs Flower {FLOWER}, and flwr {installed} is installed; "
            f"install the right one with: pip install 'flwr=={FLOWER}.*'"
        )


# --- The guard around what the SuperLink serves ---

FLEET = "/v1/fleet/"
ORDERS, REPLIES = "/v1/runtime/push-messages", "/v1/fleet/push-messages"
MOST_BYTES = 32 * 2**20  # of a node's request; Flower's nodes cut arrays into chunks of 5 MB
SPARE_BYTES = 16 * 2**10  # by which a reply's announcement may be longer than twice the longest order's
MOST_WAITING, MOST_OF_ONE = 512 * 2**20, 64 * 2**20  # bytes of large requests at once: of all, of one address
LARGE = 64 * 2**10
GUARD_SECONDS = 60.0  # within which the guard must be in place

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App) -> App:
    """The same application, but for other machines only its Fleet API exists, and that takes no huge requests.

    Flower serves three interfaces on one port. The Fleet API, for nodes, checks each request's signature; the others,
    which submit runs and add keys, do not authenticate anybody, so they are left to this machine. Flower also takes
    requests of any size, and a reply that announces some thousand objects would block its database for everybody. An
    honest reply is announced in about as many bytes as the order it answers. Requests are in memory before anybody's
    key is checked, so only so many bytes of them are received at the same time.
    """
    longest_order = 0
    waiting: Counter[str] = Counter()  # bytes of large requests that are being received or answered, by address

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal longest_order, waiting
        path, length = scope.get("path", ""), content_length(scope)
        is_fleet = path.startswith(FLEET)
        most = 2 * longest_order + SPARE_BYTES if path == REPLIES else MOST_BYTES
        if scope["type"] == "http" and is_fleet and not 0 <= length <= most:
            await _refuse(send, 413, b"too large, or of unknown size")
        elif scope["type"] == "lifespan" or is_this_machine(scope) or is_fleet:
            if path == ORDERS:
                longest_order = max(longest_order, length)
            peer = (scope.get("client") or ("",))[0]
            if length < LARGE or is_this_machine(scope):
                await app(scope, receive, send)
            elif waiting[peer] + length > MOST_OF_ONE or waiting.total() + length > MOST_WAITING:
                await _refuse(send, 503, b"too much at once; try again")  # Flower's nodes do
            else:
                waiting[peer] += length
                try:
                    await app(scope, receive, send)
                finally:
                    waiting[peer] -= length
                    waiting += Counter()  # without those that are done
        elif scope["type"] == "http":
            await _refuse(send, 403, b"only for nodes")

    return serve


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


def start_superlink(once_served: Callable[[int], None]) -> None:
    """Run `flower-superlink`, with its options in `sys.argv`, and the guard around the application it serves.

    Flower hands its application to `uvicorn.run`, which is replaced. `once_served` hears the port, in a thread. A
    SuperLink that serves in any other way would do so without the guard: the process ends instead.
    """
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    run, served = uvicorn.run, threading.Event()
    if not {"app", "port"} <= inspect.signature(run).parameters.keys():
        raise UserError(f"uvicorn {version('uvicorn')} cannot be guarded; install the one that flwr {FLOWER} asks for.")

    def run_guarded(app: App, **options: Any) -> None:
        served.set()
        threading.Thread(target=once_served, args=(options["port"],), daemon=True).start()
        run(guarded(app), **options)

    setattr(uvicorn, "run", run_guarded)
    threading.Thread(target=_end_unguarded, args=(served,), daemon=True).start()
    flower_superlink()


def _end_unguarded(served: threading.Event) -> None:
    if not served.wait(GUARD_SECONDS):
        print(f"This SuperLink cannot be guarded; install flwr {FLOWER}.", file=sys.stderr, flush=True)
        os._exit(2)


# --- A SuperExec that forks ---

CLIENT_COMMAND, CLIENT_MODULE = "flwr-clientapp", "flwr.supernode.cli.flwr_clientapp"


class ForkingSubprocess:
    """What Flower's executor uses of `subprocess`; for a message to a client, a fork instead of a new Python."""

    DEVNULL = subprocess.DEVNULL

    @staticmethod
    def Popen(arguments: Sequence[str], **options: Any) -> Any:
        start = fork_client if arguments[0] == CLIENT_COMMAND else subprocess.Popen
        return start(arguments, **options)


def start_superexec(preloaded: Sequence[str]) -> None:
    """Run `flower-superexec`, with its options in `sys.argv`, in a process that has imported these modules before.

    Flower starts a new Python for each message to a node; on a small device importing torch takes longer than
    training. Every message still has a process of its own, which ends with it, but it is a fork of this one: the
    executor's `subprocess` is replaced.
    """
    from flwr.supercore.cli.flower_superexec import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor

    for name in (*preloaded, CLIENT_MODULE):
        importlib.import_module(name)
    setattr(subprocess_executor, "subprocess", ForkingSubprocess)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that children that end leave no zombies
    flower_superexec()


def fork_client(arguments: Sequence[str], **_: Any) -> int:
    """Fork this process; the child runs the command for one message, and its id is returned."""
    if child := os.fork():
        return child
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = list(arguments)
        importlib.import_module(CLIENT_MODULE).flwr_clientapp()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without the parent's clean-up


# --- Messages of the server app ---

GONE = {3, 4, 5}  # Flower's error codes for a node or a message that is not there any more


def send(grid: Grid, message: Message) -> str:
    """Send one message; its id, or '' if it could not be sent, as its node may be gone.

    The grid raises an error of a private module if a node vanishes while a message is uploaded for it.
    """
    import httpx
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

    try:
        return next(iter(grid.push_messages([message])), "") or ""
    except (httpx.HTTPStatusError, ObjectPushError):
        return ""


def has_reply_objects(grid: Grid) -> bool:
    """Is this the grid of a SuperLink? That of Flower's simulation hands replies over in one piece."""
    return hasattr(grid, "_runtime_client")


class ReplyObjects:
    """The reply to one message on a SuperLink, object by object, over the grid's private connection.

    A node announces its reply as a tree of objects and uploads them one by one. The grid's own `pull_messages`, once
    it has seen such a tree, waits until the last object is there, whoever uploads it, and however large it is.
    """

    def __init__(self, grid: Any, sent: str) -> None:
        self.client, self.node, self.run = grid._runtime_client, grid.node, grid.run.run_id
        self.sent, self.message_id = sent, ""

    def announced(self) -> Iterator[str] | None:
        """The names of all objects, in the order of upload; None if no reply was announced. It is announced once."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        response = self._call("PullMessages", PullAppMessagesRequest(message_ids=[self.sent]))
        for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == self.sent:
                self.message_id = message.metadata.message_id
                return (node.object_id for node in iterate_object_tree(tree))
        return None

    def fetch(self, name: str) -> bytes | None:
        """An object's content; None if it is not there yet. Raises `LookupError` if it never will be."""
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self.node, run_id=self.run, object_id=name)
        response = self._call("PullObject", request)
        if not response.object_found:
            raise LookupError(name)
        return bytes(response.object_content) if response.object_available else None

    def confirm(self) -> None:
        """The SuperLink need not keep the reply any longer."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        request = ConfirmMessageReceivedRequest(node=self.node, run_id=self.run, message_object_id=self.message_id)
        self._call("ConfirmMessageReceived", request)

    def assembled(self, contents: Mapping[str, bytes]) -> Any:
        """The reply that these objects make; whatever it is."""
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        return inflate_object_from_contents(self.message_id, dict(contents))

    def _call(self, method: str, request: Any) -> Any:
        from flwr.supercore.run import RunNotRunningException

        try:
            return getattr(self.client, method)(request)
        except RunNotRunningException:  # no `Exception`: it would pass through all handlers
            raise ConnectionError("the SuperLink says that the run is over") from None


def unpacked_bytes(contents: Mapping[str, bytes]) -> int:
    """How large the arrays in these objects are: one may name the same chunk again and again."""
    from flwr.app import Array
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_head_values_from_object_content,
    )

    size = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            chunks = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            size += sum(len(contents[children[number]]) for number in chunks)
    return size


# --- The SuperLink's list of nodes ---


class ControlApi:
    """The part of the SuperLink's Control API that registers nodes; `flwr` itself has commands for some of it only."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def nodes(self) -> list[Any]:
        """All nodes that the SuperLink ever knew, with `node_id`, `public_key` and `status`."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return list(self.client.ListNodes(ListNodesRequest()).nodes_info)

    def register(self, public_key: bytes, name: str) -> None:
        from flwr.proto.control_pb2 import RegisterNodeRequest

        self.client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name))

    def unregister(self, node_id: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self.client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))


@contextmanager
def control_api(address: str, authority: bytes) -> Iterator[ControlApi]:
    """A connection to the SuperLink at this address of this machine; it raises the errors of httpx."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperLink")]
    client = ControlHttpClient.from_server_address(address, False, authority, interceptors)
    try:
        yield ControlApi(client)
    finally:
        client.close()
