"""Which processes are ours? Those that were written down when they were started, and all that these have started.

A process is known by its number, start, boot and command. What it has started carries a mark in its environment, and so
is found when the process itself has died and left it behind.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

GRACE = 8.0  # seconds to end by itself
MARK = "REBAFL_STARTED"  # the variable whose value all that one start has brought forth inherits
ALIVE, LEFT_OVER, DEAD = "alive", "left over", "dead"
_children: list[subprocess.Popen[bytes]] = []
"""Those of this process: Python warns if the object of a child that still runs is deleted."""


@dataclass(frozen=True)
class Started:
    """A process that leads a group of its own. Number, start, boot and command together belong to no other process."""

    pid: int
    began: int
    """In ticks since the machine started; the time of day of that start is not reliable, it moves with the clock."""
    boot: str
    command: tuple[str, ...]
    mark: str = ""
    """In the environment of all that it has started; empty if it was started before there were marks."""

    @staticmethod
    def read(values: Mapping[str, Any]) -> Started:
        command = tuple(map(str, values["command"]))
        mark = str(values.get("mark", ""))
        return Started(int(values["pid"]), int(values["began"]), str(values["boot"]), command, mark)

    @staticmethod
    def now(pid: int, command: Sequence[str], mark: str = "") -> Started:
        return Started(pid, _ticks(pid), _boot(), tuple(command), mark)

    def process(self) -> psutil.Process | None:
        """The process itself, if it still runs and no other has taken its number."""
        try:
            process = psutil.Process(self.pid)
            same = (_ticks(self.pid), _boot(), tuple(process.cmdline())) == (self.began, self.boot, self.command)
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.Error, OSError):
            return None

    @property
    def alive(self) -> bool:
        return self.process() is not None


def start(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Started:
    """Start a command in a session of its own, so that it outlives this terminal and can be stopped as a whole.

    It must be a program itself, not a script that names one: its command line is what it is known by.
    """
    mark = secrets.token_hex(16)
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children.append(child)
    return Started.now(child.pid, command, mark)


def _ticks(pid: int) -> int:
    """When a process began, in ticks since the machine started: the 22nd value in its line."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def kill(started: Iterable[Started]) -> None:
    """As if the power went: SIGKILL for each process and all it started, at once."""
    family = _families(started)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(family, timeout=GRACE)
    _reap()


def stop(started: Iterable[Started]) -> None:
    """Ask each process and all it started to end; kill what does not."""
    family = _families(started)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=GRACE)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=GRACE)
    _reap()


def _reap() -> None:
    """Forget the children that ended, so that no zombies are left."""
    _children[:] = [child for child in _children if child.poll() is None]


def states(started: Mapping[str, Started]) -> dict[str, str]:
    """Name -> alive, dead, or left over: the process itself died, and something that it had started runs."""
    alive = {name for name, one in started.items() if one.alive}
    marked = _by_mark() if len(alive) < len(started) else {}
    return {
        name: ALIVE if name in alive else LEFT_OVER if one.mark in marked else DEAD for name, one in started.items()
    }


def _families(started: Iterable[Started]) -> list[psutil.Process]:
    """All processes that are still ours, parents first."""
    family: dict[int, psutil.Process] = {}
    marked = _by_mark()
    for leading in started:
        known: list[psutil.Process] = []
        if (leader := leading.process()) is not None:
            with contextlib.suppress(psutil.Error):
                known += [leader, *leader.children(recursive=True)]
        known += marked.get(leading.mark, [])
        # a session's number is given to no other process while the session has members
        if any(_is_in(leading.pid, process.pid) for process in known):
            known += [process for process in psutil.process_iter() if _is_in(leading.pid, process.pid)]
        for process in known:
            family.setdefault(process.pid, process)
    return list(family.values())


def _by_mark() -> dict[str, list[psutil.Process]]:
    """All running processes that carry a mark; those of other users cannot be looked at, and are not ours."""
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mark = process.environ().get(MARK, "")
            if mark and process.status() != psutil.STATUS_ZOMBIE:
                found.setdefault(mark, []).append(process)
    return found


def _is_in(leader: int, pid: int) -> bool:
    """Does the process belong to the session or the group of this leader?"""
    try:
        return leader in (os.getsid(pid), os.getpgid(pid))
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def wait_until(ready: Callable[[], object], seconds: float, pause: float = 0.2) -> bool:
    """Poll until `ready()` or the time is over."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
