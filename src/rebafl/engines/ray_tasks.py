"""Train clients as Ray tasks, on this machine or on a cluster (`RAY_ADDRESS`).

The model goes into the object store once per round and the data once per run; a worker process fetches each
once and keeps it. A task whose worker dies is done again by Ray; since a client's round is a pure
function, that changes nothing. Without a cluster to join, a private one is started on 127.0.0.1.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from ..base.errors import UserError
from ..base.files import is_locked, locked
from ..base.tensors import unpack
from ..training.client_work import Work
from ..training.resources import stay_with_one_thread
from .jobs import DIED, TRIES, Job, RemoteEngine, Runner, Unpacked, failed

AHEAD = 3  # tasks submitted for each CPU: enough to keep it busy, and no more messages in memory than that
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # nothing sent, no word on GPUs
PLACE, PREFIX = "/tmp", "rebafl-ray-"
YOUNG = 2.0  # seconds after which a folder of ours that is not locked was left behind
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # despite its name: listen on 127.0.0.1 only, on any system


@contextmanager
def connected(cpus: int) -> Iterator[Any]:
    """The `ray` module, connected: to the cluster in RAY_ADDRESS, else to one of our own with `cpus` CPUs."""
    private = not os.environ.get("RAY_ADDRESS")
    wanted = {**QUIET, **(LOOPBACK if private else {})}
    os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
    try:
        import ray  # reads them
    except ImportError:
        raise UserError("engine=ray needs Ray; install it with: pip install 'rebafl[ray]'.") from None
    if ray.is_initialized():  # whoever started it will stop it
        yield ray
        return
    with _own_folder() if private else nullcontext() as folder:
        try:
            _start(ray, folder, cpus)
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _own_folder() -> Iterator[str]:
    """A folder for Ray's files, which nobody else can enter: Ray opens its own to everybody, so it gets one inside.

    What a driver that was killed left behind is removed by the next one.
    """
    _remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PLACE))
    try:
        with locked(folder, patience=5):
            yield str(folder / "r")  # short: Ray's sockets are in it
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers() -> None:
    for folder in Path(PLACE).glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = os.lstat(folder)
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if ours and time.time() - status.st_mtime > YOUNG and not is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _start(ray: Any, folder: str | None, cpus: int) -> None:
    """Join a cluster, or start one that keeps its files in this folder."""
    own = {"address": "local", "num_cpus": cpus, "include_dashboard": False, "_temp_dir": folder}
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # workers find the modules that we find
    try:
        ray.init(log_to_driver=False, logging_level="error", **(own if folder else {}))
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"Ray cannot be reached or started ({reason}); see RAY_ADDRESS.") from None
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class RayTasks(RemoteEngine):
    def __init__(self, work: Work, cpus: int) -> None:
        super().__init__(work)
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(connected(cpus))
        self._ahead = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._task = self._ray.remote(num_cpus=1, max_retries=TRIES - 1)(do_job)
        self._run = uuid.uuid4().hex
        self._work = self._ray.put(work)
        self._versions = itertools.count()

    def close(self) -> None:
        self._stack.close()

    def announce(self, broadcast: bytes) -> None:
        self._version, self._broadcast = next(self._versions), self._ray.put(broadcast)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Unpacked]]:
        waiting, open_jobs = iter(jobs), dict[Any, Job]()
        while True:
            for job in itertools.islice(waiting, self._ahead - len(open_jobs)):
                open_jobs[self._submit(job)] = job
            if not open_jobs:
                return
            ready, _ = self._ray.wait(list(open_jobs))
            for reference in ready:
                yield open_jobs.pop(reference), unpack(self._reply(reference))

    def _submit(self, job: Job) -> Any:
        # a reference within a list is handed on as it is: only a worker that lacks the object fetches it
        return self._task.remote((self._run, self._version), [self._work, self._broadcast], job.message())

    def _reply(self, reference: Any) -> bytes:
        try:
            reply: bytes = self._ray.get(reference)
            return reply
        except self._ray.exceptions.WorkerCrashedError:
            return failed(DIED)
        except self._ray.exceptions.RayError as error:
            return failed(f"Ray: {type(error).__name__}")


_kept: dict[str, Any] = {}
"""In a worker process: the runner of the current run and the broadcast it knows."""


def do_job(what: tuple[str, int], references: list[Any], message: bytes) -> bytes:
    """One job, in a worker process of Ray's."""
    import ray

    run, version = what
    if _kept.get("run") != run:
        stay_with_one_thread()
        _kept.update(run=run, version=None, runner=Runner(ray.get(references[0])))
    if _kept["version"] != version:
        _kept["runner"].receive(ray.get(references[1]))
        _kept["version"] = version
    reply: bytes = _kept["runner"].do(message)
    return reply
