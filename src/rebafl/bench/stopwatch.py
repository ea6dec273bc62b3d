"""How long does a program take for each round, and how much memory? Seen from outside, the same for everyone."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from ..base.errors import UserError

PAUSE = 0.5  # seconds between two samples of the memory: sampling costs time too
OnStep = Callable[[int, int, str], None]
"""Called before each measurement with the number done, the number of all, and the name of the next."""


def ignore_step(done: int, total: int, text: str) -> None:
    """Shows no progress."""


@dataclass
class Timing:
    """`start`: seconds until it was ready; `rounds`: seconds of each; `memory`: the most bytes it held.

    `client`: seconds until the first client was trained, if the program says so; `parent`: the most bytes that the
    program itself held, without its children, as the system counts it.
    """

    start: float = 0.0
    client: float = 0.0
    rounds: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    memory: int = 0
    parent: int = 0
    version: str = ""


def warm_seconds(timing: Timing) -> float:
    """The median of a round's seconds; the first round, which pays for warming up, is not counted."""
    return median(timing.rounds[1:])


def measure(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Timing:
    """Run a program that prints a JSON line when it is ready and one after each round.

    `environment`: the variables that it sees; None for those of this process.
    """
    began = last = time.perf_counter()
    timing = Timing()
    pipe = subprocess.PIPE
    with log.open("wb") as errors, subprocess.Popen(command, stdout=pipe, stderr=errors, env=environment) as process:
        watcher = _Memory(process.pid)
        try:
            assert process.stdout is not None
            for text in process.stdout:
                now = time.perf_counter()
                with suppress(ValueError):  # programs also print other lines
                    line = json.loads(text)
                    if "client" in line:
                        timing.client = timing.client or now - began
                        continue
                    _add_line(timing, line, now - last)
                    timing.parent = _peak_memory(process.pid)
                    last = now
        finally:
            timing.memory = watcher.stop()
            _end(process)
    if process.returncode != 0 or not timing.rounds:
        raise UserError(f"{' '.join(command[-3:])} failed (exit code {process.returncode}): {_tail(log)}")
    return timing


def in_turns(
    commands: Mapping[str, Sequence[str]], rounds: int, log: Path, on_step: OnStep = ignore_step
) -> dict[str, list[float]]:
    """Seconds of each round of programs that take turns: a round of one, then the same round of the next.

    What changes from one minute to the next then affects all alike. In every other round the order is reversed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with log.open("wb") as errors:
        running = {
            name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            for name, command in commands.items()
        }
        try:
            for process in running.values():
                _await_line(process, "version", log)
            for number in range(rounds):
                for place, name in enumerate([*commands][:: -1 if number % 2 else 1]):
                    on_step(number * len(commands) + place, rounds * len(commands), name)
                    began = time.perf_counter()
                    _give_turn(running[name])
                    _await_line(running[name], "round", log)
                    seconds[name].append(time.perf_counter() - began)
        finally:
            for process in running.values():
                _kill(process)
    return seconds


def _give_turn(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it ended: noticed where its line is awaited
        process.stdin.write(b"\n")
        process.stdin.flush()


def _await_line(process: subprocess.Popen[bytes], key: str, log: Path) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        with suppress(ValueError):
            if key in json.loads(text):
                return
    raise UserError(f"A contender ended too early: {_tail(log)}")


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-300:]


def _add_line(timing: Timing, line: Mapping[str, Any], seconds: float) -> None:
    if "round" in line:
        timing.rounds.append(seconds)
        timing.accuracy.append(float(line["accuracy"]))
    else:
        timing.start, timing.version = seconds, str(line["version"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for it to end; if we were interrupted, end it and all that it started."""
    try:
        process.wait(timeout=60)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    for member in _family(process.pid):
        with suppress(psutil.Error):
            member.kill()
    process.communicate()


class _Memory:
    """Samples the memory that a process and its children hold, shared pages counted once."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.most

    def _watch(self, pid: int) -> None:
        while not self._over.wait(PAUSE):
            self.most = max(self.most, sum(map(_proportional, _family(pid))))


def _peak_memory(pid: int) -> int:
    """The largest resident set that a process ever had."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
