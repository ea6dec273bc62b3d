"""A real SuperLink, with the server app's grid in this process and nodes that are threads of it and may lie."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import make_message
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.supernode.fleet_http_connection import http_request_response

from rebafl.federation.flower_changes import send_secret
from rebafl.federation.machine_secret import read_secret
from rebafl.federation.ops.layout import Plan, create
from rebafl.federation.ops.processes import free_ports, wait_until

PROJECT = """
[project]
name = "wire"
version = "1.0.0"
description = "for tests"
license = "MIT"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "rebafl.federation.app.server_app:app"
clientapp = "rebafl.federation.app.client_app:app"
"""


# the server's program, without the process that runs the server's app: a test takes its part
PROGRAM = """
from rebafl.federation import superlink
superlink._apps_command = lambda folder, port: ["/bin/sh", "-c", "while kill -0 $PPID; do sleep 1; done"]
superlink.main()
"""


@dataclass(frozen=True)
class Wire:
    """A server on this machine: its address, its folder, and that of the federation, which holds the nodes' keys."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def authority(self) -> bytes:
        return (self.folder / "ca.crt").read_bytes()

    def key(self, number: int) -> ec.EllipticCurvePrivateKey:
        private = load_ssh_private_key((self.folder / f"node-{number}" / "node.key").read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        return private


@contextmanager
def superlink(folder: Path, members: int = 6):
    """The SuperLink as it runs in a federation of so many nodes; this process has its secret meanwhile."""
    port, *others = free_ports(members + 1)
    create(folder / "fed", Plan(members, (), "127.0.0.1", port, tuple(others)))
    server = folder / "fed" / "server"
    quiet = {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    files = [f"--{option}={server / name}" for option, name in FILES.items()]
    words = [str(server), "--host", "127.0.0.1", "--port", str(port), *files, "--enable-supernode-auth"]
    words += ["--disable-runtime-dependency-installation"]
    send_plain = ProtobufClient._send
    with (folder / "superlink.log").open("w") as log:
        program = [sys.executable, "-c", PROGRAM, *words]
        process = subprocess.Popen(program, stdout=log, stderr=log, env={**os.environ, **quiet})
        send_secret(read_secret(server))
        try:
            said = folder / "superlink.log"
            assert wait_until(lambda: f"{members} node keys are registered" in said.read_text(), 120), said.read_text()
            yield Wire(f"127.0.0.1:{port}", folder / "fed", process)
        finally:
            setattr(ProtobufClient, "_send", send_plain)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


FILES = {
    "ssl-ca-certfile": "ca.crt",
    "ssl-certfile": "server.crt",
    "ssl-keyfile": "server.key",
    "database": "superlink.db",
}


def begin_run(wire: Wire) -> HttpGrid:
    """Submit a run and take the server app's part in it."""
    address, authority = wire.address, wire.authority
    spoken = [RuntimeVersionHttpInterceptor(component_name="SuperLink")]
    signs = SuperExecAuthHttpInterceptor(
        master_secret=read_secret(wire.server), protected_methods={"/flwr.proto.Runtime/AcquireTask"}
    )
    files = {"pyproject.toml": PROJECT.encode(), "app.py": b"", "README.md": b"", "LICENSE": b""}
    content, _ = build_fab_from_files(files)
    fab = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
    with ControlHttpClient.from_server_address(address, False, authority, spoken) as control:
        control.StartRun(StartRunRequest(fab=fab))
    with RuntimeHttpClient.from_server_address(address, False, authority, [*spoken, signs]) as executor:
        token = executor.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"])).token
    grid = HttpGrid(address, insecure=False, root_certificates=authority, token=token)
    given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    grid.set_run(run_from_proto(given.run))
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client)).start()  # a thread that ends with this process
    return grid


@dataclass
class Line:
    """A node's line to the SuperLink."""

    node_id: int
    receive: Callable
    send: Callable
    pull: Callable
    push: Callable
    confirm: Callable

    def complete(self, message: Message, tree: ObjectTree) -> Message:
        """A message that was received, with its content."""
        run = message.metadata.run_id
        whole = pull_and_inflate_object_from_tree(
            tree,
            lambda name: self.pull(run, name),
            lambda name: self.confirm(run, name),
            return_type=Message,
            initial_backoff=0.05,
        )
        whole.metadata.__dict__["_message_id"] = message.metadata.message_id
        return whole

    def deliver(self, reply: Message, pace=lambda: True) -> None:
        """Announce a reply and upload its parts, one whenever `pace` returns, as long as it returns True."""
        with suppress(Exception):  # refused, or the test is over
            run = reply.metadata.run_id
            reply.metadata.__dict__["_message_id"] = reply.object_id
            parts = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
            self.deliver_parts(reply, get_object_tree(reply), parts, run, pace)

    def deliver_parts(self, reply, tree: ObjectTree, parts: dict[str, bytes], run: int, pace=lambda: True) -> None:
        wanted, session = self.send(reply, tree, 1.0)
        for name, content in parts.items():
            if name in wanted:
                if not pace():
                    return
                self.push(run, session, name, content)


@contextmanager
def line_to(wire: Wire, number: int):
    """The line of the node with this number."""
    keys = (wire.key(number), wire.key(number).public_key())
    with http_request_response(wire.address, False, wire.authority, keys) as connection:
        node, receive, send, _, _, pull, push, confirm = connection
        yield Line(node, receive, send, pull, push, confirm)


@contextmanager
def nodes(wire: Wire, behaviours):
    """A thread for each `behaviour(line, message)`, which answers a message as it likes; stopped at the end."""
    over, ready = threading.Event(), threading.Barrier(len(behaviours) + 1)

    def serve(number, behave):
        with line_to(wire, number) as line:
            ready.wait(30)
            while not over.is_set():
                if received := line.receive():
                    behave(line, line.complete(*received))
                else:
                    over.wait(0.5)

    threads = [threading.Thread(target=serve, args=pair, daemon=True) for pair in enumerate(behaviours)]
    for thread in threads:
        thread.start()
    try:
        ready.wait(30)
        yield SimpleNamespace(over=over)
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


__all__ = ["Line", "Wire", "begin_run", "line_to", "make_message", "nodes", "superlink"]
