"""A real SuperLink, with the server app's grid in this process and nodes that are threads of it and may lie."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import httpx
from flwr.app import Message
from flwr.app.message import make_message
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.supernode.fleet_http_connection import http_request_response

from rebafl.federation.ops.credentials import make_node_key
from rebafl.federation.ops.processes import free_ports

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


@contextmanager
def superlink(folder: Path):
    """The SuperLink as it runs in a federation, but in plain text and for any node; its address."""
    (port,) = free_ports(1)
    (folder / "members.toml").write_text(f'[clients]\n0 = "{make_node_key(folder, "nobody")}"\n')
    quiet = {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    words = ["--insecure", "--host", "127.0.0.1", "--port", str(port), "--isolation", "process"]
    words += ["--disable-runtime-dependency-installation", "--database", str(folder / "superlink.db")]
    program = [sys.executable, "-m", "rebafl.federation.superlink", str(folder), *words]
    with (folder / "superlink.log").open("w") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log, env={**os.environ, **quiet})
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def begin_run(address: str) -> HttpGrid:
    """Submit a run and take the server app's part in it."""
    spoken = [RuntimeVersionHttpInterceptor(component_name="SuperLink")]
    files = {"pyproject.toml": PROJECT.encode(), "app.py": b"", "README.md": b"", "LICENSE": b""}
    content, _ = build_fab_from_files(files)
    fab = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
    with ControlHttpClient.from_server_address(address, True, None, spoken) as control:
        until = time.monotonic() + 60
        while True:
            try:
                control.StartRun(StartRunRequest(fab=fab))
                break
            except httpx.TransportError:
                assert time.monotonic() < until, "the SuperLink does not start"
                time.sleep(0.1)
    with RuntimeHttpClient.from_server_address(address, True, None, spoken) as executor:
        token = executor.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"])).token
    grid = HttpGrid(address, insecure=True, token=token)
    given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    grid.set_run(run_from_proto(given.run))
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
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
def line_to(address: str):
    with http_request_response(address, insecure=True) as connection:
        node, receive, send, _, _, pull, push, confirm = connection
        yield Line(node, receive, send, pull, push, confirm)


@contextmanager
def nodes(address: str, behaviours):
    """A thread for each `behaviour(line, message)`, which answers a message as it likes; stopped at the end."""
    over, ready = threading.Event(), threading.Barrier(len(behaviours) + 1)

    def serve(behave):
        with line_to(address) as line:
            ready.wait(30)
            while not over.is_set():
                if received := line.receive():
                    behave(line, line.complete(*received))
                else:
                    over.wait(0.5)

    threads = [threading.Thread(target=serve, args=(behave,), daemon=True) for behave in behaviours]
    for thread in threads:
        thread.start()
    try:
        ready.wait(30)
        yield SimpleNamespace(over=over)
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


__all__ = ["Line", "begin_run", "line_to", "make_message", "nodes", "superlink"]
