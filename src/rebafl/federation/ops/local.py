"""How is a whole federation tried out on one machine? The same scripts that real machines run, all on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from ...base.config import Plain
from ...base.errors import UserError, exists
from ...base.files import is_locked, write_whole
from ...runs.events import RoundLine
from ...runs.record import Record
from . import processes
from .control import Link, connected
from .layout import ALLOWED, DESCRIPTION, NODE_CONFIG, Plan, create, machines, need_flower, read_plan
from .processes import Started, free_ports, is_taken, wait_until
from .submission import COMPONENTS, SUBMITTED, ask_for, ended, go_on, hermetic, need_submitted, wanted_run

STATE, OUT, LOG = "processes.json", "run", "log"
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
        return Link(f"127.0.0.1:{self.plan.port}", self.server / "ca.crt")

    def started(self) -> dict[str, Started]:
        """What was started last under each name; it may be dead by now."""
        try:
            found = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
            return {str(name): Started.read(each) for name, each in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.folder / STATE} is damaged ({error}); end its processes by hand.") from None

    def alive(self, name: str) -> bool:
        return name in (found := self.started()) and found[name].alive

    @property
    def is_up(self) -> bool:
        return any(each.alive for each in self.started().values())

    def need_up(self) -> None:
        if not self.is_up:
            raise UserError(f"The federation in {self.folder} is not up; start it with: rebafl federation up")

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Start one machine's script."""
        if self.alive(name):
            raise UserError(f"{name} runs already.")
        port = self.plan.port if name == "server" else self.plan.node_ports[self.number(name)]
        if is_taken(port):
            raise UserError(
                f"Port {port} of 127.0.0.1, which {name} needs, is taken; end what listens there, or use another --dir."
            )
        machine = self.folder / name
        full = {**hermetic(machine / "flwr"), **(environment or {})}
        script = str((machine / "start.sh").resolve())
        begun = processes.start(["/bin/sh", script], machine, full, machine / LOG)
        self._note({**self.started(), name: begun})

    def number(self, name: str) -> int:
        if name not in machines(self.plan) or name == "server":
            raise UserError(
                f"There is no node {name.removeprefix('node-')!r}; the nodes are 0 to {self.plan.nodes - 1}."
            )
        return int(name.removeprefix("node-"))

    def kill(self, name: str) -> None:
        """As if the machine lost power."""
        self.need_up()
        if not self.alive(name):
            raise UserError(f"{name} is dead already.")
        processes.kill([self.started()[name]])

    def down(self) -> int:
        """Stop everything that was started here and still runs; nothing else. Nodes go first, to say goodbye."""
        found = self.started()
        running = [name for name, each in found.items() if each.alive]
        processes.stop([found[name] for name in running if name != "server"])
        processes.stop([found[name] for name in running if name == "server"])
        (self.folder / STATE).unlink(missing_ok=True)
        return len(running)

    def begin(
        self, config: Plain, components: Mapping[str, str] = COMPONENTS, environment: Environment = lambda name: {}
    ) -> None:
        """Ask for a run and start the server, which submits it, then the nodes."""
        if self.is_up:
            raise UserError(f"The federation in {self.folder} is up already; see: rebafl federation status")
        (self.server / SUBMITTED).unlink(missing_ok=True)
        ask_for(self.server, {"counts": self._rule(), **config}, self.out, components)
        self.start("server", environment("server"))
        if not wait_until(lambda: is_taken(self.plan.port), START):  # nodes that come too early wait ever longer
            raise UserError(f"The server does not start; see {self.server / LOG}.")
        for name in machines(self.plan)[1:]:
            self.start(name, environment(name))

    def _rule(self) -> str:
        """Does each node hold the part of the data set that has its number? Then the server knows its class counts."""
        texts = [(self.folder / f"node-{k}" / NODE_CONFIG).read_text(encoding="utf-8") for k in range(self.plan.nodes)]
        return "split" if all(text.split() == [f"partition-id={k}"] for k, text in enumerate(texts)) else "fixed"

    def submit(self, config: Plain) -> None:
        """Ask for a run of a server that was started by its script."""
        if connected(self.link, {}) is None:
            raise UserError(f"No server answers at {self.link.address}; start it with: {self.server}/start.sh")
        (self.server / SUBMITTED).unlink(missing_ok=True)
        ask_for(self.server, config, self.out)
        go_on(self.server, self.plan.port)
        need_submitted(self.server, 0)

    def ended(self) -> str | None:
        """Why the run is over: '' if it is finished, None while it goes on or nobody knows."""
        return None if is_locked(self.out) else ended(self.server, self.plan.port)

    def status(self) -> Plain:
        """Everything there is to know, as plain values."""
        from ..app.server.members import read_keys  # needs what comes with Flower

        answering = connected(self.link, read_keys(self.server / ALLOWED))
        nodes = {
            str(number): {
                "process": self._process(f"node-{number}"),
                "connected": bool(answering and answering.get(number)),
            }
            for number in range(self.plan.nodes)
        }
        record = Record(self.out)
        lines = record.rounds() if record.begun else []
        wanted = wanted_run(self.server) or {}
        unfinished = answering is not None and len(lines) < wanted.get("rounds", 0)
        problem = (self.ended() if unfinished else None) or None
        return {
            "up": self.is_up,
            "server": {"process": self._process("server"), "answers": answering is not None},
            "nodes": nodes,
            "rounds": len(lines),
            "of": wanted.get("rounds"),
            "accuracy": lines[-1].accuracy if lines else None,
            "last_round": _short(lines[-1]) if lines else None,
            "problem": problem,
            "run": str(self.out),
        }

    def _process(self, name: str) -> str:
        return "alive" if self.alive(name) else "dead" if name in self.started() else "not started here"

    def _note(self, found: Mapping[str, Started]) -> None:
        text = json.dumps({name: asdict(each) for name, each in found.items()}, indent=1)
        write_whole(self.folder / STATE, text.encode())


def open_or_create(folder: Path, nodes: int) -> LocalFederation:
    """The federation in this directory, or a new one there with free ports of 127.0.0.1."""
    if not exists(folder / DESCRIPTION):
        ports = free_ports(nodes + 1)
        create(folder, Plan(nodes, (), "127.0.0.1", ports[0], tuple(ports[1:])))
    found = LocalFederation(folder)
    if found.plan.nodes != nodes:
        raise UserError(f"{folder} holds a federation of {found.plan.nodes} nodes, not {nodes}; choose another --dir.")
    return found


def _short(line: RoundLine) -> Plain:
    return {key: line.plain()[key] for key in ("round", "active", "refused", "updated", "seconds")}
