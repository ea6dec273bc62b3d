"""What can be mailed? The views of some runs in one file that opens without a network, however long the runs were.

A file has at most two megabytes. What would not fit is binned, and the report says so.
"""

from __future__ import annotations

import base64
import gzip
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.config import Plain
from ..base.errors import UserError
from ..base.version import VERSION
from ..runs.record import run_name
from ..runs.settings import flatten
from .assets import standalone
from .cells import ANSWERED, STATES, Cells, binned
from .folder import group_of
from .run_view import RunView, counts_table, read_view

MOST_BYTES = 2_000_000
ROWS = ("recall", "presence")
CURVES = ("accuracy", "loss", "diversity", "bytes_up", "bytes_down", "seconds", "updated", "discarded", "epsilon")


@dataclass(frozen=True)
class Limits:
    """How much of each run a report holds: cells of its map, points of its curves, troubles; and of how many runs."""

    cells: int
    points: int
    troubles: int
    clients: int
    detailed: int


LADDER = (
    Limits(4_000_000, 5_000, 5_000, 20_000, 1_000),
    Limits(1_000_000, 1_000, 2_000, 2_000, 50),
    Limits(200_000, 500, 1_000, 1_000, 20),
    Limits(100_000, 250, 300, 500, 8),
    Limits(50_000, 100, 100, 200, 3),
    Limits(20_000, 40, 50, 100, 1),
)
"""Tried one after the other, until the report is small enough."""


def report(paths: Sequence[Path], title: str = "") -> str:
    """The report as the text of an HTML file."""
    unique = list({path.resolve(): path for path in paths}.values())
    views = [read_view(path) for path in unique]
    title = title or f"rebafl: {', '.join(run_name(path) for path in unique[:3])}{' …' if len(unique) > 3 else ''}"
    for limits in LADDER:
        text = standalone(title, _blocks(views, unique, title, limits))
        if len(text.encode()) <= MOST_BYTES:
            return text
    raise UserError(f"{len(unique)} runs are too many for one report; name fewer.")


def _blocks(views: Sequence[RunView], paths: Sequence[Path], title: str, limits: Limits) -> dict[str, str]:
    blocks: dict[str, str] = {}
    runs = []
    for number, view in enumerate(views):
        detailed = number < limits.detailed
        run, cells = _run(view, str(paths[number]), limits, detailed)
        runs.append(run)
        if cells is not None:
            blocks[f"cells-{number}"] = _packed(cells)
    words = " ".join(shlex.quote(str(path)) for path in paths[:20]) + (" …" if len(paths) > 20 else "")
    payload = {
        "title": title,
        "version": VERSION,
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": f"rebafl report {words}",
        "states": STATES,
        "runs": runs,
    }
    return {"payload": _packed(json.dumps(payload).encode()), **blocks}


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _run(view: RunView, name: str, limits: Limits, detailed: bool) -> tuple[Plain, bytes | None]:
    """All that is shown of one run, and the cells of its map."""
    rounds, notes = view.rounds_from(0), list[str]()
    facts = {**view.facts(), "id": name}
    facts["links"] = {}
    group = group_of(flatten(view.config))
    shown = _thinned(rounds, limits.points, notes)
    if not detailed:
        notes.append("Its maps are left out, to keep the file small.")
        kept = {key: shown[key] for key in (*CURVES, "from", "at", "others") if key in shown}
        return {"facts": facts, "rounds": kept, "group": group, "notes": notes, "brief": True}, None
    if len(rounds["troubles"]) > limits.troubles:
        notes.append(f"Of {rounds['all_troubles']} refused and missing uploads the last {limits.troubles} are listed.")
        shown["troubles"] = rounds["troubles"][-limits.troubles :]
    details = view.details()
    if view.clients > limits.clients and details["holdings"]["counts"]:
        notes.append(f"Who holds what is shown for {limits.clients} of {view.clients} clients, evenly picked.")
        picked = np.linspace(0, view.clients - 1, limits.clients).astype(int).tolist()
        details["holdings"] |= {"counts": [details["holdings"]["counts"][c] for c in picked], "picked": picked}
    shape, cells = _map(view, limits.cells, notes)
    run = {"facts": facts, "rounds": shown, "details": details, "prototypes": view.prototypes(), "map": shape}
    return {**run, "group": group, "notes": notes}, cells


def _thinned(rounds: Plain, points: int, notes: list[str]) -> Plain:
    """Of very long runs, evenly picked rounds; the last is always among them."""
    count = len(rounds["accuracy"])
    if count <= points:
        return dict(rounds)
    notes.append(f"Curves and class rows show {points} of {count} rounds, evenly picked.")
    at = np.unique(np.linspace(0, count - 1, points).astype(int)).tolist()
    thin: dict[str, Any] = {**rounds, "at": [number + 1 for number in at]}
    for name in (*CURVES, "chosen", "answered", *ROWS):
        if rounds.get(name) is not None:
            thin[name] = [rounds[name][number] for number in at]
    thin["others"] = {name: [values[number] for number in at] for name, values in rounds["others"].items()}
    return thin


def _map(view: RunView, most: int, notes: list[str]) -> tuple[Plain, bytes]:
    """The participation map: every cell, or bins of clients and rounds if these are too many."""
    cells = view.cells
    rounds, clients = cells.shape
    if rounds * clients <= most:
        return {"kind": "cells"}, cells.tobytes()
    columns = min(rounds, 1_000, max(20, most // 40))
    rows = min(clients, max(20, most // columns))
    order = _order(view, cells)
    share, worst = binned(cells, order, rows, columns)
    notes.append(
        f"The map shows {share.shape[1]} × {share.shape[0]} bins of {clients} clients × {rounds} rounds: the share "
        "that answered, and on top of it whether any upload of the bin was refused, lost or late. "
        "Clients are in the order of the class they hold most of."
    )
    return {"kind": "bins", "rows": share.shape[1], "columns": share.shape[0]}, share.tobytes() + worst.tobytes()


def _order(view: RunView, cells: Cells) -> list[int]:
    """By the class a client holds most of, then by how often it answered."""
    held = view.holdings()
    answered = -(cells == ANSWERED).sum(0)
    main = counts_table(held, view.clients).argmax(1) if held and held.counts else np.zeros(view.clients, dtype=int)
    return [int(client) for client in np.lexsort((answered, main))]
