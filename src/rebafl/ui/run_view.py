"""What is there to show of one run? The one place where a run folder becomes what page and report draw."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..base.config import Plain
from ..base.errors import UserError, exists
from ..base.files import is_locked
from ..runs import measures
from ..runs.events import RoundLine
from ..runs.follow import Follower
from ..runs.holdings import Holdings, read_holdings
from ..runs.opening import SIMULATION, kind_of_run
from ..runs.progress import read_progress
from ..runs.prototypes import read_prototypes
from ..runs.record import Record, open_run, run_name
from ..runs.settings import flatten
from ..runs.stopping import is_requested, plateau_after, stopped_after
from .cells import ANSWERED, Cells, cells_of, idle_state, presence

State = Literal["running", "stopping", "stopped", "finished", "interrupted", "failed"]
FAILURE = "failure.txt"  # where a federation's server leaves the reason why it ended
RECENT = 10  # rounds whose mean length says how long the others will take
MOST_TROUBLES = 20_000  # that are listed one by one
MOST_CELLS = 300_000_000  # clients times rounds; a byte each
LINKS = {"privacy/audit.html": "privacy audit"}


def state_of(path: Path, done: int, rounds: int) -> State:
    """Is somebody working on this run, and if not, why not?"""
    if is_locked(path):
        return "stopping" if is_requested(path) else "running"
    if done >= rounds or plateau_after(path) is not None:
        return "finished"
    if stopped_after(path) is not None:
        return "stopped"
    return "failed" if exists(path / FAILURE) else "interrupted"


def seconds_left(state: State, seconds: Sequence[float], rounds: int) -> float | None:
    """How long a running run will take, by its last rounds."""
    if state != "running" or not seconds:
        return None
    recent = seconds[-RECENT:]
    return (rounds - len(seconds)) * math.fsum(recent) / len(recent)


class RunView:
    """One run, looked at again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        record = open_run(path)
        self.config = record.config()
        self.environment = record.environment() if record.begun else {}
        self.federated = kind_of_run(self.environment) != SIMULATION
        self.idle = idle_state(self.config, self.federated)
        self.clients = int(self.config.get("partition", {}).get("clients", 0))
        self._follower = Follower(path)
        self._cells: Cells = np.zeros((0, self.clients), dtype=np.uint8)
        self._holdings: Holdings | None = None
        self._stamp = 0

    @property
    def lines(self) -> list[RoundLine]:
        return self._follower.lines

    @property
    def cells(self) -> Cells:
        """One row per round, one number per client."""
        return self._cells

    def look(self) -> int:
        """Read what is new; how many rounds of before still stand."""
        kept = self._follower.look()
        if self.clients * len(self.lines) > MOST_CELLS:
            raise UserError(
                f"{self.path} has {self.clients} clients and {len(self.lines)} rounds, too many to be shown."
            )
        new = cells_of(self.lines[kept:], self.clients, self.idle)
        self._cells = np.concatenate([self._cells[:kept], new]) if kept else new
        return kept

    def holdings(self) -> Holdings | None:
        """Who holds what, read again only when the file changed."""
        path = self.path / "holdings.json"
        stamp = path.stat().st_mtime_ns if exists(path) else 0
        if stamp != self._stamp:
            self._holdings, self._stamp = read_holdings(self.path), stamp
        return self._holdings

    def classes(self) -> list[str]:
        held = self.holdings()
        if held:
            return list(held.classes)
        return [str(number) for number in range(len(self.lines[-1].recall))] if self.lines else []

    def facts(self) -> Plain:
        """What does not grow with the rounds."""
        done, rounds = len(self.lines), int(self.config["rounds"])
        state = state_of(self.path, done, rounds)
        now = read_progress(self.path) if state in ("running", "stopping") else None
        failure = self.path / FAILURE
        return {
            "name": run_name(self.path),
            "path": str(self.path),
            "kind": "federation" if self.federated else "simulation",
            "state": state,
            "problem": failure.read_text(encoding="utf-8").strip() if state == "failed" else "",
            "done": done,
            "rounds": rounds,
            "progress": vars(now) | {"age": round(time.time() - now.at, 1)} if now else None,
            "left": seconds_left(state, [line.seconds for line in self.lines], rounds),
            "clients": self.clients,
            "groups": self._groups(),
            "classes": self.classes(),
            "idle": self.idle,
            "warnings": [str(text) for text in self.environment.get("warnings", [])],
            "summary": self.summary(),
            "links": {file: title for file, title in LINKS.items() if exists(self.path / file)},
            "has_prototypes": (self.path / "prototypes").is_dir(),
        }

    def _groups(self) -> int:
        """How many groups of clients the settings tell apart: client i is in group i mod groups."""
        lists = [
            value
            for name in ("participation.p", "partition.classes", "algorithm.eps")
            if isinstance(value := flatten(self.config).get(name), list | tuple)
        ]
        return max(map(len, lists), default=1)

    def summary(self) -> Plain | None:
        """The numbers that stand for the whole run."""
        accuracy = [line.accuracy for line in self.lines]
        if not accuracy:
            return None
        scored = measures.scored(accuracy, flatten(self.config).get("evaluate.every", 1))
        return {
            "best": measures.best(accuracy),
            "best_round": measures.best_round(accuracy),
            "last": accuracy[-1],
            "last_ten": measures.last_ten(scored),
            "last_ten_name": measures.tail_name(len(scored)),
            "second_half": measures.second_half(scored),
        }

    def details(self) -> Plain:
        """Settings, environment, who holds what and how to run it again."""
        held = self.holdings()
        return {
            "settings": flatten(self.config),
            "environment": flatten(self.environment),
            "command": self.command(),
            "holdings": _plain_holdings(held, self.clients) if held else {"source": "not recorded", "counts": None},
        }

    def command(self) -> str:
        """What runs it again, in a new directory."""
        if self.federated:
            return f"rebafl federation up --nodes {self.clients} …   # with the settings below"
        return f"rebafl run {shlex.quote(str(self.path / 'config.toml'))} out=NEW-DIRECTORY"

    def rounds_from(self, first: int) -> Plain:
        """What grows with the rounds, from this one on (counted from 0)."""
        lines = self.lines[first:]
        columns = ("accuracy", "loss", "diversity", "bytes_up", "bytes_down", "seconds", "updated", "discarded")
        troubles, reasons = _troubles(lines)
        others = sorted({name for line in lines for name in line.other_accuracies})
        return {
            "from": first,
            **{name: [getattr(line, name) for line in lines] for name in columns},
            "others": {name: [line.other_accuracies.get(name) for line in lines] for name in others},
            "epsilon": [line.epsilon for line in lines],
            "chosen": [len(line.active) + len(line.unreached) for line in lines],
            "answered": [int((row == ANSWERED).sum()) for row in self.cells[first:]],
            "recall": [list(line.recall) for line in lines],
            "presence": self._presence(first),
            "reasons": reasons,
            "troubles": troubles,
            "all_troubles": sum(len(line.refused) + len(line.missing) for line in lines),
        }

    def _presence(self, first: int) -> list[list[float | None]] | None:
        held = self.holdings()
        if not held or not held.counts:
            return None
        return presence(self.cells[first:], counts_table(held, self.clients))

    def prototypes(self) -> Plain | None:
        """The classes' prototypes in the two directions in which they differ most, round by round; None without any."""
        kept = read_prototypes(self.path, len(self.lines))
        if not kept:
            return None
        tables = {number: table.double().numpy() for number, table in kept.items()}
        known = np.concatenate([table[np.abs(table).sum(1) > 0] for table in tables.values()])
        if len(known) < 2:
            return None
        centre = known.mean(0)
        _, _, directions = np.linalg.svd(known[-2000:] - centre, full_matrices=False)
        plane = directions[:2].T
        places = {number: (table - centre) @ plane for number, table in tables.items()}
        return {
            "rounds": list(places),
            "places": [
                [[round(float(x), 4), round(float(y), 4)] if np.abs(row).sum() > 0 else None
                 for (x, y), row in zip(place, tables[number], strict=True)]
                for number, place in places.items()
            ],
        }  # fmt: skip


def _troubles(lines: Sequence[RoundLine]) -> tuple[list[list[Any]], list[str]]:
    """What was refused or missing, oldest first: round, client, what, and the place of its reason in the list of those.

    Of very many, the last.
    """
    reasons: dict[str, int] = {}
    found: list[list[Any]] = []
    for line in reversed(lines):
        for kind, said in (("missing", line.missing), ("refused", line.refused)):
            for client, reason in reversed(list(said.items())):
                found.append([line.round, client, kind, reasons.setdefault(reason, len(reasons))])
        if len(found) >= MOST_TROUBLES:
            break
    return found[MOST_TROUBLES - 1 :: -1] if len(found) > MOST_TROUBLES else found[::-1], list(reasons)


def counts_table(held: Holdings, clients: int) -> npt.NDArray[np.int64]:
    """One row per client; of those that are not known, zeros."""
    table = np.zeros((clients, len(held.classes)), dtype=np.int64)
    for client, row in held.counts.items():
        if client < clients:
            table[client] = row
    return table


def _plain_holdings(held: Holdings, clients: int) -> Plain:
    counts: Any = counts_table(held, clients).tolist() if held.counts else None
    return {"source": held.source, "counts": counts, "known": len(held.counts)}


def read_view(path: Path) -> RunView:
    """A run, read to its last round; refused with a sentence if it has none."""
    if not Record(path).begun:
        raise UserError(f"{path} holds no run that has begun; there is nothing to show of it yet.")
    view = RunView(path)
    view.look()
    if not view.lines:
        raise UserError(f"{path} has no finished round yet; resume it with: rebafl run out={path}.")
    return view
