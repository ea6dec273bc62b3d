"""What did each client do in each round? One small number for each, of which the participation map is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.events import RoundLine

Cells = npt.NDArray[np.uint8]

NOT_CHOSEN, AWAY, ANSWERED, LATE, LOST, REFUSED, SPENT = range(7)
STATES = (
    ("not chosen", "it was not to take part in this round"),
    ("away", "it was not there: not connected, or away in the simulation"),
    ("answered", "its upload arrived and was accepted"),
    ("late", "it was asked and still connected, but had not answered when the round was closed"),
    ("lost", "it was asked or trained, but its upload did not arrive"),
    ("refused", "its upload arrived and was not used"),
    ("budget spent", "it was left out, since its privacy budget allows no more uploads"),
)
"""Name and meaning of each number."""


def idle_state(config: Mapping[str, Any], federated: bool) -> int:
    """What it means that a client took no part.

    In a federation: nobody asked it. In a simulation clients are away, but for a sample of a fixed size, which is a
    choice of the server.
    """
    drawn = config.get("participation", {}).get("kind") == "fraction"
    return NOT_CHOSEN if federated or drawn else AWAY


def column(line: RoundLine, clients: int, idle: int) -> Cells:
    """The states of all clients in one round."""
    states = np.full(clients, idle, dtype=np.uint8)
    _set(states, line.disconnected, AWAY)
    _set(states, line.unreached, AWAY)
    _set(states, line.active, ANSWERED)
    _set(states, line.lost, LOST)
    _set(states, line.late, LATE)
    _set(states, list(line.refused), REFUSED)
    _set(states, line.spent, SPENT)
    return states


def _set(states: Cells, clients: Sequence[int], state: int) -> None:
    if len(clients):
        numbers = np.asarray(clients, dtype=np.int64)
        states[numbers[(numbers >= 0) & (numbers < len(states))]] = state


def cells_of(lines: Iterable[RoundLine], clients: int, idle: int) -> Cells:
    """One row per round, one number per client."""
    rows = [column(line, clients, idle) for line in lines]
    return np.stack(rows) if rows else np.zeros((0, clients), dtype=np.uint8)


def presence(cells: Cells, counts: npt.NDArray[np.int64]) -> list[list[float | None]]:
    """By round and class: the share of all that clients hold of the class that was with those who answered."""
    total = counts.sum(0)
    held = (cells == ANSWERED).astype(np.float32) @ counts.astype(np.float32)
    shares = held / np.maximum(total, 1)
    return [[round(float(s), 4) if n else None for s, n in zip(row, total, strict=True)] for row in shares]


def binned(cells: Cells, order: Sequence[int], rows: int, columns: int) -> tuple[Cells, Cells]:
    """For a map of fewer cells, rounds by clients in this order: the share that answered (0 to 255), and the worst.

    `worst` is the most striking state in a bin besides answered and away: refused before lost before late, 0 for none.
    """
    ordered = cells[:, np.asarray(order, dtype=np.int64)]
    across = np.linspace(0, ordered.shape[0], min(columns, ordered.shape[0]) + 1).astype(np.int64)[:-1]
    down = np.linspace(0, ordered.shape[1], min(rows, ordered.shape[1]) + 1).astype(np.int64)[:-1]
    striking = np.where((ordered >= LATE) & (ordered <= REFUSED), ordered, 0).astype(np.uint8)
    worst = np.maximum.reduceat(np.maximum.reduceat(striking, across, axis=0), down, axis=1)
    there = (ordered == ANSWERED).astype(np.float32)
    sums = np.add.reduceat(np.add.reduceat(there, across, axis=0), down, axis=1)
    sizes = np.outer(np.diff([*across, ordered.shape[0]]), np.diff([*down, ordered.shape[1]]))
    return np.rint(255 * sums / sizes).astype(np.uint8), worst
