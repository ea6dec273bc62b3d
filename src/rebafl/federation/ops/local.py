"""How is a whole federation tried out on one machine? The same scripts that real machines run, all on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ...base.config import Plain
from ...base.errors import UserError, exists
from ...base.files import is_locked, write_whole
from ...runs.events import RoundLine
from ...runs.record import Record
from ..app.member_keys import MEMBERS, read_keys
from ..app.options import read_run_config
from ..flower_changes import need_flower
from . import processes
from .control import Link, connected
from .layout import DESCRIPTION, NODE_CONFIG, Plan, create, machines, node_config, read_plan, write_plan
from .processes import ALIVE, DEAD, LEFT_OVER, Started, free_ports, is_taken, wait_until
from .reach import distrust
from .submission import (
    COMPONENTS,
    RunEnd,
    forget_submission,
    isolated_environment,
    need_submitted,
    request_run,
    requested_run,
    run_end,
    submit_requested,
)

PROCESSES, OUT, LOG = "processes.json", "run", "log"
NOT_HERE = "not started here"
START = 60.0  # seconds that the server may take to answer

Environment = Callable[[str], Mapping[str, str]]
"""A machine's name -> variables for its processes."""


class LocalFederation:
    """A federation in a directory of this machine."""

    def __init__(self, folder: Path) -> None:
        need_flower()
        self.folder, self.server, self.out = folder, folder / "server", folder / OUT
        self.plan = read_plan(folder)

    @property
    def link(self) -> Link:
        return Link(f"127.0.0.1:{self.plan.port}", self.server)

    def started(self) -> dict[str, Started]:
        """What was started last under each name; it may be dead by now."""
        try:
            entries = json.loads((self.folder / PROCESSES).read_text(encoding="utf-8"))
            return {str(name): Started.read(values) for name, values in entries.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.folder / PROCESSES} is damaged ({error}); end its processes by hand.") from None

    def running(self) -> dict[str, str]:
        """What runs of all that was started, alive or left over by a script that died."""
        return {name: state for name, state in processes.states(self.started()).items() if state != DEAD}

    @property
    def is_up(self) -> bool:
        return bool(self.running())

    def need_up(self) -> None:
        if not self.is_up:
            raise UserError(f"The federation in {self.folder} is not up; start it with: rebafl federation up")

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Start one machine's script; what a script that died has left over of the machine is ended before."""
        if (state := self.running().get(name)) == ALIVE:
            raise UserError(f"{name} runs already.")
        if state == LEFT_OVER:
            processes.stop([self.started()[name]])
        self._need_port(name)
        machine = self.folder / name
        full = {**isolated_environment(machine / "flwr"), **(environment or {})}
        script = str((machine / "start.sh").resolve())
        started = processes.start(["/bin/sh", script], machine, full, machine / LOG)
        self._write_started({**self.started(), name: started})

    def _need_port(self, name: str) -> None:
        port = self.plan.port if name == "server" else self.plan.node_ports[self.number(name)]
        if is_taken(port):
            raise UserError(
                f"Port {port} of 127.0.0.1, which {name} needs, is taken; end what listens there, or use another --dir."
            )

    def number(self, name: str) -> int:
        if name not in machines(self.plan) or name == "server":
            raise UserError(
                f"There is no node {name.removeprefix('node-')!r}; the nodes are {_listed(self.plan.numbers)}."
            )
        return int(name.removeprefix("node-"))

    def kill(self, name: str) -> None:
        """As if the machine lost power."""
        self.need_up()
        if name not in self.running():
            raise UserError(f"{name} is dead already.")
        processes.kill([self.started()[name]])

    def forget(self, name: str) -> None:
        """Stop a machine that is no longer part of the federation."""
        started = self.started()
        if name in started:
            processes.stop([started[name]])
            self._write_started({other: process for other, process in started.items() if other != name})

    def write_plan(self, plan: Plan, keys: Mapping[int, str]) -> None:
        """From now on the federation looks like this."""
        write_plan(self.folder, plan, keys)
        self.plan = plan

    def down(self) -> int:
        """Stop what was started here and still runs, nothing else. Nodes first, so that they can sign off."""
        started, running = self.started(), self.running()
        processes.stop([started[name] for name in running if name != "server"])
        processes.stop([started[name] for name in running if name == "server"])
        (self.folder / PROCESSES).unlink(missing_ok=True)
        return len(running)

    def begin(
        self, config: Plain, components: Mapping[str, str] = COMPONENTS, environment: Environment = lambda name: {}
    ) -> None:
        """Request a run, start the server, which submits it, then the nodes; nothing is left running if that fails."""
        if self.is_up:
            raise UserError(f"The federation in {self.folder} is up already; see: rebafl federation status")
        forget_submission(self.server)
        settings, _ = read_run_config(config)
        rule = "free" if settings.protect.secagg else self._counts_rule()
        for name in machines(self.plan):
            self._need_port(name)
        request_run(self.server, {"counts": rule, **config}, self.out, components)
        try:
            self._start_server(environment("server"))
            for name in machines(self.plan)[1:]:
                self.start(name, environment(name))
        except BaseException:
            self.down()
            raise

    def _start_server(self, environment: Mapping[str, str]) -> None:
        """Nodes that find no server wait longer each time: it must listen before they start."""
        log = self.server / LOG
        read_before = log.stat().st_size if exists(log) else 0
        self.start("server", environment)
        wait_until(lambda: is_taken(self.plan.port) or "server" not in self.running(), START)
        if is_taken(self.plan.port):
            return
        said = log.read_bytes()[read_before:].decode(errors="replace").strip().splitlines()
        if "server" not in self.running() and said:  # its script ends by itself only if that is said
            raise UserError(said[-1])
        raise UserError(f"The server does not start; see {log}.")

    def _counts_rule(self) -> str:
        """Does each node hold the part of the data set that has its number? Then the server knows its class counts."""
        texts = {k: (self.folder / f"node-{k}" / NODE_CONFIG).read_text(encoding="utf-8") for k in self.plan.numbers}
        return "split" if all(text.split() == [node_config(k)] for k, text in texts.items()) else "fixed"

    def submit(self, config: Plain) -> None:
        """Request a run from a server that was started by its script."""
        if connected(self.link, {}) is None:
            untrusted = distrust(self.link.address, self.server / "ca.crt")
            raise UserError(
                untrusted or f"No server answers at {self.link.address}; start it with: {self.server}/start.sh"
            )
        forget_submission(self.server)
        request_run(self.server, config, self.out)
        submit_requested(self.server, self.plan.port)
        need_submitted(self.server, 0)

    def resume(self) -> None:
        """Continue with the run that was requested last: submit it again, and start what is not up."""
        config = requested_run(self.server)
        if config is None:
            raise UserError(f"No run was requested in {self.folder} yet; start one with: rebafl federation up")
        if not self.is_up:
            self.begin({name: value for name, value in config.items() if name not in ("out", "members")})
        else:
            forget_submission(self.server)
            submit_requested(self.server, self.plan.port)
        need_submitted(self.server, START)

    def run_end(self) -> RunEnd | None:
        """How the run ended; None while it continues, or if nobody knows."""
        return None if is_locked(self.out) else run_end(self.server, self.plan.port)

    def status(self) -> Plain:
        """Everything there is to know, as plain values."""
        answering = connected(self.link, read_keys(self.server / MEMBERS))
        states = processes.states(self.started())
        nodes = {
            str(number): {
                "process": states.get(f"node-{number}", NOT_HERE),
                "connected": bool(answering and answering.get(number)),
            }
            for number in self.plan.numbers
        }
        record = Record(self.out)
        lines = record.rounds() if record.begun else []
        rounds = (requested_run(self.server) or {}).get("rounds")
        unfinished = answering is not None and len(lines) < (rounds or 0)
        end = self.run_end() if unfinished else None
        untrusted = distrust(self.link.address, self.server / "ca.crt") if answering is None else ""
        return {
            "up": any(state != DEAD for state in states.values()),
            "server": {"process": states.get("server", NOT_HERE), "answers": answering is not None},
            "nodes": nodes,
            "rounds": len(lines),
            "of": rounds,
            "accuracy": lines[-1].accuracy if lines else None,
            "last_round": _short(lines[-1]) if lines else None,
            "problem": untrusted or (end.problem if end else "") or None,
            "run": str(self.out),
        }

    def _write_started(self, started: Mapping[str, Started]) -> None:
        text = json.dumps({name: asdict(process) for name, process in started.items()}, indent=1)
        write_whole(self.folder / PROCESSES, text.encode())


def open_or_create(folder: Path, nodes: int) -> LocalFederation:
    """The federation in this directory, or a new one there with free ports of 127.0.0.1."""
    if not exists(folder / DESCRIPTION):
        ports = free_ports(nodes + 1)
        create(folder, Plan(nodes, (), "127.0.0.1", ports[0], tuple(ports[1:])))
    federation = LocalFederation(folder)
    if federation.plan.nodes != nodes:
        raise UserError(
            f"{folder} holds a federation of {federation.plan.nodes} nodes, not {nodes}; choose another --dir, or add "
            "nodes with: rebafl federation add-node"
        )
    return federation


def _listed(numbers: Sequence[int]) -> str:
    whole = list(numbers) == list(range(len(numbers))) and len(numbers) > 1
    return f"0 to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _short(line: RoundLine) -> Plain:
    return {key: line.plain()[key] for key in ("round", "active", "refused", "updated", "seconds")}
