"""Runs that were never computed, written in an instant: for views of many clients, many rounds and rare events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rebafl.runs.checkpoint import Manifest, states_digest
from rebafl.runs.events import RoundLine
from rebafl.runs.holdings import Holdings
from rebafl.runs.record import Record
from rebafl.runs.settings import make_settings
from support.toy import round_line

CLASSES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def written_run(
    path: Path,
    lines: Sequence[RoundLine],
    clients: int,
    federation: bool = False,
    holdings: Holdings | None = None,
    classes: Sequence[str] = CLASSES,
    **settings: Any,
) -> Record:
    """A run directory with these rounds, as if it had been run."""
    record = Record(path)
    chosen = make_settings({"partition": {"kind": "pathological", "clients": clients}, **settings})
    record.checkpoint.mkdir(parents=True, exist_ok=True)
    record.write_config(chosen.plain())
    facts = {"rebafl": "0.1.0", "settings_sha256": chosen.digest, "warnings": []}
    record.write_environment({**facts, **({"federation": {"run": "x"}} if federation else {})})
    write_lines(record, lines)
    if holdings is None:
        rows = {c: [500 * (k in (c % 10, (c * 7 + 3) % 10)) for k in range(len(classes))] for c in range(clients)}
        holdings = Holdings(classes, clients, "split", rows)
    holdings.write(path)
    return record


def write_lines(record: Record, lines: Sequence[RoundLine]) -> None:
    """Make these the committed rounds of a run."""
    data = "".join(json.dumps(line.packed()) + "\n" for line in lines).encode()
    (record.path / "rounds.jsonl").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    record._write_manifest(Manifest(len(lines), len(data), 0, digest, "", states_digest(0)))


def drawn_lines(clients: int, rounds: int, seed: int = 0, troubles: bool = True, classes: int = 10) -> list[RoundLine]:
    """Rounds in which about half of the clients are there, and now and then one is late, lost or refused."""
    random = np.random.default_rng(seed)
    level, lines = 20.0, []
    for number in range(1, rounds + 1):
        active = np.flatnonzero(random.random(clients) < 0.5).tolist() or [0]
        bad = active[: 3 + len(active) // 500] if troubles and number % 3 == 0 else []
        late, gone, refused = bad[0::3], bad[1::3], bad[2::3]
        level += (88 + seed % 7 - level) * 0.03 + float(random.normal()) * 1.2
        facts: dict[str, Any] = {
            "active": active, "lost": sorted([*late, *gone]), "late": late,
            "refused": dict.fromkeys(refused, "not finite"),
            "missing": dict.fromkeys([*late, *gone], "no complete reply within 60 s"),
        }  # fmt: skip
        lines.append(
            round_line(
                round=number,
                accuracy=round(level, 2),
                loss=round(3 - level / 40, 4),
                diversity=0.3 + 2 / number,
                bytes_up=1000 * len(active),
                bytes_down=1000 * len(active),
                seconds=1.5,
                recall=[round(float(v), 1) for v in np.clip(random.normal(level, 15, classes), 0, 100)],
                **facts,
            )
        )
    return lines
