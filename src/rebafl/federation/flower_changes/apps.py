"""How do apps get their processes? A SuperExec forks them, and says at once when one was killed."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

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
                report_dead(arguments, f"was killed by signal {number}")
        elif os.WEXITSTATUS(status):
            report_dead(arguments, f"ended with code {os.WEXITSTATUS(status)}")


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


def report_dead(arguments: Sequence[str], reason: str) -> None:
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


def answer_for_dead_apps() -> None:
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
