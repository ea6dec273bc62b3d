"""What is changed in Flower and uvicorn, and which of their private parts are used? All of it is in this module.

Flower promises to keep `flwr.app`, `flwr.clientapp` and `flwr.serverapp`; other modules use nothing else of it. What
is here was written for one version of Flower (which fixes that of uvicorn) and is checked when a process starts.
Flower is imported inside functions: the commands are there, and say how to get it, where it is not installed.

    need_flower             the version
    start_superlink         the SuperLink, with a guard around it
    start_supernode         a SuperNode, with a guard around it, that notices when its app has died
    start_superexec         a SuperExec, which forks apps instead of starting new processes, and says who was killed
    send_secret, run_flwr   asking them with the secret that the guards want
    send, ReplyObjects      messages sent one by one, replies fetched in parts
    control_api             which nodes the SuperLink knows
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import UserError
from ..base.words import one_line
from .guard import HEADER, App, Scope, guarded, proof, secret_only
from .stored import Ledger, StoredReply
from .watch import follow

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


# --- What is served, and to whom ---

GUARD_SECONDS = 60.0  # within which the guard must be in place
EXPIRED_SECONDS = 30.0  # between two times that expired messages are dropped


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
        threading.Thread(target=_drop_expired, args=(app.state.linkstate_factory.state,), daemon=True).start()
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
    _answer_for_dead_apps()
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


def bound_members(ledger: Ledger) -> None:
    """Make the SuperLink store no more of a member than one reply, from nobody else, and not larger than it may be.

    Flower takes whatever is announced, under whatever sender's name, and keeps it until somebody fetches it. It would
    also take a message that is no reply, and hand it to another node as if it came from the server.
    """
    from flwr.proto.message_pb2 import PushObjectResponse
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.superlink.servicer.fleet import fleet_handlers

    pull_messages, pull_object = fleet_handlers.pull_messages, fleet_handlers.pull_object
    push_messages, push_object = fleet_handlers.push_messages, fleet_handlers.push_object

    def give_order(request: Any, state: Any, store: Any) -> Any:
        response = pull_messages(request, state, store)
        for tree in response.message_object_trees:
            ledger.order_given(request.node.node_id, (node.object_id for node in iterate_object_tree(tree)))
        return response

    def give_part(request: Any, state: Any) -> Any:
        response = pull_object(request, state)
        ledger.part_given(request.node.node_id, request.object_id, len(response.object_content))
        return response

    def take_reply(request: Any, state: Any) -> Any:
        facts = [message.metadata for message in request.messages_list]
        roots = [tree.object_id for tree in request.message_object_trees]
        own = [
            fact.message_id for fact in facts if fact.src_node_id == request.node.node_id and fact.reply_to_message_id
        ]
        if len(own) != 1 or own != roots or len(facts) != 1:
            raise FlowerError(ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, "no reply of this node")
        response = push_messages(request, state)
        if response.session_id and (before := ledger.begin(request.node.node_id, response.session_id, own[0])):
            drop(state, before)
        return response

    def take_part(request: Any, state: Any) -> Any:
        node, size = request.node.node_id, len(request.object_content)
        if (reply := ledger.refuses(node, request.session_id, size)) is None:
            return push_object(request, state)
        if reply.root:
            drop(state, reply)
            print(
                f"Node {node} uploads more than {ledger.most} bytes: its reply is dropped.", file=sys.stderr, flush=True
            )
        return PushObjectResponse(stored=False)

    def drop(state: Any, reply: StoredReply) -> None:
        with state.session():
            state._cleanup_push_session(reply.session, cleanup_messages=True)
            state.object_store.delete(reply.root)

    changed = {"pull_messages": give_order, "pull_object": give_part}
    for name, handler in {**changed, "push_messages": take_reply, "push_object": take_part}.items():
        setattr(fleet_handlers, name, handler)


def _drop_expired(state_of: Callable[[], Any]) -> None:
    """Now and then, drop the orders that nobody may answer any more, and the replies that nobody has fetched."""
    while True:
        time.sleep(EXPIRED_SECONDS)
        try:
            drop_expired(state_of())
        except database_errors() as error:  # it may be busy; then next time
            print(f"Expired messages were not dropped: {one_line(error)}", file=sys.stderr, flush=True)


def drop_expired(state: Any) -> None:
    """Flower itself drops a message when it is asked about it, which nobody does once a round is over."""
    from flwr.supercore.date import now
    from flwr.supercore.state.schema.linkstate_models import MessageIns, MessageRes
    from sqlalchemy import select

    with state.session() as session:
        expired = MessageIns.created_at + MessageIns.ttl < now().timestamp()
        orders = set(session.scalars(select(MessageIns.message_id).where(expired)).all())
        replies = session.scalars(select(MessageRes.message_id).where(MessageRes.reply_to_message_id.in_(orders))).all()
        for message_id in (*orders, *replies):
            state.object_store.delete(message_id)
        state.delete_messages(orders)


def database_errors() -> tuple[type[Exception], ...]:
    """What a SuperLink raises whose database cannot be used."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    return CommandError, SQLAlchemyError, sqlite3.Error


def send_secret(secret: bytes) -> None:
    """From now on, whatever this process asks of a SuperLink or a SuperNode says that it has the secret."""
    from flwr.supercore.protobuf.client import ProtobufClient

    send_plain = ProtobufClient._send

    def send_proven(client: Any, context: Any, **options: Any) -> Any:
        context.request.headers[HEADER] = proof(secret)
        return send_plain(client, context, **options)

    setattr(ProtobufClient, "_send", send_proven)


def run_flwr() -> None:
    """Run `flwr`, with its words in `sys.argv`."""
    from flwr.cli.app import app

    app()


# --- A SuperExec that forks, and says who was killed ---

FORKED = {
    "flwr-clientapp": "flwr.supernode.cli.flwr_clientapp",
    "flwr-serverapp": "flwr.superlink.cli.flwr_serverapp",
}
"""Command -> the module with the function that it runs, which has the module's name."""

Killed = Callable[[int], AbstractContextManager[object]]
"""The signal by which an app was killed -> what is done around telling Flower so."""


class ForkingSubprocess:
    """What Flower's executor uses of `subprocess`; for apps, a fork instead of a new Python."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, killed: Killed) -> None:
        self.killed = killed

    def Popen(self, arguments: Sequence[str], **options: Any) -> Any:
        if arguments[0] not in FORKED:
            return subprocess.Popen(arguments, **options)
        child = fork_app(arguments)
        threading.Thread(target=self._wait, args=(child, arguments), daemon=True).start()
        return child

    def _wait(self, child: int, arguments: Sequence[str]) -> None:
        """Flower notices a dead app by the heartbeats that it misses, which takes minutes; here it is said at once."""
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            print(f"{arguments[0]} was killed by signal {number}.", file=sys.stderr, flush=True)
            with self.killed(number):
                _report_dead(arguments, f"was killed by signal {number}")
        elif os.WEXITSTATUS(status):
            _report_dead(arguments, f"ended with code {os.WEXITSTATUS(status)}")


def start_superexec(preloaded: Sequence[str], killed: Killed = nullcontext) -> None:
    """Run `flower-superexec`, with its options in `sys.argv`, in a process that has imported these modules before.

    Flower starts a new Python for each message to a node; on a small device importing torch takes longer than
    training. Every message still has a process of its own, which ends with it, but it is a fork of this one: the
    executor's `subprocess` is replaced. So nobody reads an app's token in the list of processes, either.
    """
    from flwr.supercore.cli.flower_superexec import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor

    for name in preloaded:
        importlib.import_module(name)
    setattr(subprocess_executor, "subprocess", ForkingSubprocess(killed))
    flower_superexec()


def fork_app(arguments: Sequence[str]) -> int:
    """Fork this process; the child runs the command for one task, and its id is returned."""
    if child := os.fork():
        return child
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = list(arguments)
        module = FORKED[arguments[0]]
        getattr(importlib.import_module(module), module.rpartition(".")[2])()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without the parent's clean-up


def _report_dead(arguments: Sequence[str], reason: str) -> None:
    """Tell the SuperLink or SuperNode that an app has ended, in its name; if it has said so itself, nothing happens."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.proto.runtime_pb2 import PushTaskOutputRequest
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    values = dict(zip(arguments, [*arguments[1:], ""], strict=True))
    certificates = Path(values["--root-certificates"]).read_bytes() if "--root-certificates" in values else None
    client = RuntimeHttpClient.from_server_address(
        values["--runtime-api-address"], "--insecure" in values, certificates,
        [RuntimeVersionHttpInterceptor(component_name=arguments[0]), RuntimeTokenHttpInterceptor(values["--token"])],
    )  # fmt: skip
    with client, suppress(httpx.HTTPError):
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=reason))


def _answer_for_dead_apps() -> None:
    """Make the SuperNode answer an order with an error as soon as its app is said to have failed without an answer.

    It would wait for the answer until the app has missed its heartbeats, and for the rest of a half-written answer for
    ever, and take no other order meanwhile.
    """
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode, Status, SubStatus
    from flwr.supercore.constant import TaskType
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.object_store import NoObjectInStoreError
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    finish, create = InMemoryNodeState.finish_task, InMemoryNodeState.create_task

    def unfinished(state: Any) -> list[Any]:
        return [task for task in state.get_tasks() if task.status.status != Status.FINISHED]

    def is_unfinished(state: Any, message_id: str) -> bool:
        try:
            tree = state.object_store.get_object_tree(message_id)
        except NoObjectInStoreError:
            return False
        return any(state.object_store.get(node.object_id) == b"" for node in iterate_object_tree(tree))

    def drop_unfinished_replies(state: Any) -> None:
        for message_id, entry in list(state.msg_store.items()):
            if entry.message.metadata.reply_to_message_id and is_unfinished(state, message_id):
                state.object_store.delete(message_id)  # whoever waits for the rest of it gives up
                if not entry.is_retrieved:
                    state.msg_store.pop(message_id)

    def finish_task(state: Any, task_id: int, sub_status: str, details: str) -> bool:
        finished = finish(state, task_id, sub_status, details)
        task = next(iter(state.get_tasks(task_ids=[task_id])), None)
        if not finished or sub_status != SubStatus.FAILED or task is None or task.type != TaskType.CLIENT_APP:
            return finished
        if not any(other.run_id == task.run_id for other in unfinished(state)):
            # otherwise there is a later order of this run: then this one was answered
            with state.lock_msg_store:
                drop_unfinished_replies(state)
                for entry in state.msg_store.values():
                    entry.is_retrieved |= not entry.message.metadata.reply_to_message_id
                error = Error(ErrorCode.CLIENT_APP_CRASHED, f"the node's app {details}")
                state._store_error_replies({task.run_id}, error)
        return finished

    def create_task(state: Any, task_type: str, run_id: int, *options: Any, **more: Any) -> int | None:
        """An order of another run: apps of earlier runs have nobody to answer to, and Flower would let them wait."""
        for other in unfinished(state):
            if other.run_id != run_id:
                finish(state, other.task_id, SubStatus.STOPPED, "its run is over")
        return create(state, task_type, run_id, *options, **more)

    setattr(InMemoryNodeState, "finish_task", finish_task)
    setattr(InMemoryNodeState, "create_task", create_task)


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


class SecretInterceptor:
    """Says with each request of a client that it has the secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        context.request.headers[HEADER] = proof(self.secret)
        return call_next(context)


@contextmanager
def control_api(address: str, authority: bytes, secret: bytes) -> Iterator[ControlApi]:
    """A connection to the SuperLink at this address of this machine; it raises the errors of httpx."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperLink"), SecretInterceptor(secret)]
    client = ControlHttpClient.from_server_address(address, False, authority, interceptors)
    try:
        yield ControlApi(client)
    finally:
        client.close()
