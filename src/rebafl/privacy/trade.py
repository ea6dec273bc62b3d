"""What does each protection cost in accuracy, and what does it gain against attacks? The same runs with each, attacked.

Every row is one setting, run once per seed and attacked in its last round, with the attacker knowing of the protection:
tracing by the server and by a client, linking over the last three rounds that were kept, which classes a client holds,
whose prototypes are handed to whom, membership from the weights. Clients of all seeds are the units of every interval.
Runs and attacks that are there already are not made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ..base.config import Plain, parse_assignments
from ..base.errors import UserError, exists
from ..base.files import write_text
from ..base.words import Say
from ..data import Data
from ..runs.environment import machine
from ..runs.events import Event, RoundLine
from ..runs.measures import last_ten
from ..runs.record import Record
from ..runs.settings import Settings, make_settings
from ..runs.simulate import simulate
from ..training.resources import one_thread
from .curves import CLIENT, SERVER, Plan, Steps
from .exposure import exposure
from .measures import Estimate, estimate
from .parts.counts import held_classes
from .parts.linking import linked
from .parts.look import look
from .parts.stage import Stage
from .parts.tracing import BROADCAST, REST, SUM, UPLOAD, Tracing
from .replay import Replay

BASE = (
    "dataset=fashion-mnist", "rounds=20", "partition=clustered", "partition.classes=[2,5]", "partition.samples=200",
    "training.epochs=2", "training.batch=20",
)  # fmt: skip
"""Small runs in which clients hold 100 or 40 images of a class."""
ROWS = (
    (),
    ("algorithm.mu=0",),
    ("protect.min_count=50",),
    ("protect.min_holders=3",),
    ("protect.min_holders=3", "protect.holders=announced"),
    ("protect.counts=rounded",),
    ("protect.counts=withheld",),
    ("protect.clip=12",),
    ("protect.clip=12", "protect.noise=1", "protect.min_count=5"),
    ("protect.clip=12", "protect.noise=10", "protect.min_count=25"),
    ("protect.update_clip=0.2", "protect.update_noise=0.1"),
    ("protect.update_clip=0.2", "protect.central_noise=0.3", "protect.counts=withheld"),
    ("protect.update_clip=0.2", "protect.central_noise=1", "protect.counts=withheld"),
    ("protect.secagg=true",),
    ("protect.secagg=true", "protect.min_holders=3"),
)
"""Words that are added to those of all rows; the first row has none."""
ATTACK_STEPS = 30  # of the progress, for one attack
LINKED = 3  # rounds

Tick = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Cell:
    """One row with one seed."""

    row: tuple[str, ...]
    settings: Settings
    folder: Path

    @property
    def result(self) -> Path:
        return self.folder / "attacks.json"


def cells(base: Plain, words: Sequence[str], rows: Sequence[tuple[str, ...]], seeds: Sequence[int], folder: Path,
          ) -> list[Cell]:  # fmt: skip
    """All rows with all seeds; a wrong word is refused before anything is run."""
    if len(set(seeds)) != len(seeds) or not seeds or min(seeds) < 0:
        raise UserError("--seeds must be different whole numbers from 0 up, such as 0,1,2.")
    made = []
    for row in rows:
        for seed in seeds:
            settings = make_settings(base, parse_assignments([*words, *row, f"seed={seed}"]))
            made.append(Cell(tuple(row), settings, folder / settings.label))
    return made


def trade(
    made: Sequence[Cell],
    plan: Plan,
    data: Data | None = None,
    say: Say = print,
    tick: Tick = lambda done, of, text: None,
) -> dict[str, Any]:
    """Run and attack all cells; the table, as plain values."""
    steps = Steps(sum(cell.settings.rounds + ATTACK_STEPS for cell in made), tick)
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for number, cell in enumerate(made, 1):
        name = f"{number}/{len(made)} {' '.join(cell.row) or 'none'}, seed {cell.settings.seed}"
        found.setdefault(cell.row, []).append(_measured(cell, plan, data, say, steps, name))
    return {
        "settings": made[0].settings.plain(),
        "seeds": sorted({cell.settings.seed for cell in made}),
        "audit_seed": plan.seed,
        "fpr": plan.risk.fpr,
        "ks": list(plan.ks),
        "rows": [_row(row, some, plan) for row, some in found.items()],
        "machine": machine(),
    }


def _measured(cell: Cell, plan: Plan, data: Data | None, say: Say, steps: Steps, name: str) -> dict[str, Any]:
    """One cell: from its file if that belongs to the same settings and plan, else run and attacked."""
    key = {"settings": cell.settings.digest, "rounds": cell.settings.rounds, "seed": plan.seed, "ks": list(plan.ks)}
    begun = steps.done

    def listen(event: Event) -> None:
        if isinstance(event, RoundLine):
            steps(f"{name}: round {event.round}, accuracy {event.accuracy:.1f}")

    record = simulate(cell.settings, cell.folder / "run", data, listen=listen, say=say)
    if exists(cell.result):
        stored = json.loads(cell.result.read_text(encoding="utf-8"))
        if stored.get("key") == key:
            steps.done = begun + cell.settings.rounds + ATTACK_STEPS
            return dict(stored)
    steps.done = begun + cell.settings.rounds
    steps(f"{name}: attacked")
    with one_thread():
        measured = {"key": key, **_attacked(record, plan, data)}
    steps.done = begun + cell.settings.rounds + ATTACK_STEPS
    write_text(cell.result, json.dumps(measured, indent=1) + "\n")
    return measured


def _attacked(record: Record, plan: Plan, data: Data | None) -> dict[str, Any]:
    """What a finished run costs and gives away: estimates over its clients by name."""
    replay = Replay(record.path, data, say=lambda text: None)
    rounds = [number for number in replay.at_hand() if replay.lines[number - 1].used][-LINKED:]
    if not rounds:
        raise UserError(f"No round of {record.path} used an upload, so there is nothing to attack.")
    scenes = replay.scenes(rounds)
    stage = Stage(replay, scenes[-1:], scenes, plan, Steps(1, lambda done, of, text: None))
    seen = look(stage)
    found: dict[str, Estimate] = {}
    if stage.shares:
        tracing = Tracing(stage, seen)
        kinds = {f"{SERVER} {SUM}": SUM} if stage.summed else {f"{SERVER} {UPLOAD}": UPLOAD}
        for name, kind in {**kinds, f"{CLIENT} {BROADCAST}": BROADCAST, f"{CLIENT} {REST}": REST}.items():
            leak = tracing.of(kind)
            if leak:
                found |= {f"{name} AUC": leak.auc, f"{name} TPR": leak.tpr, f"{name} fakes": leak.fakes}
        for curve in [] if stage.summed else tracing.curves():
            for point in curve.points:
                found[f"{curve.attacker} k={point.k} AUC"] = point.auc
                found[f"{curve.attacker} k={point.k} TPR"] = point.tpr
    for (attacker, way), by_client in seen.inference.items():
        found[f"{attacker} membership by {way}"] = estimate([fmean(told[0] for told in s) for s in by_client.values()])
    if not stage.summed:
        found["held classes"] = held_classes(stage)[0]
    links = {row["way"]: row for row in linked(stage)}
    found |= {f"linked by {way}": Estimate(**row["result"]) for way, row in links.items()}
    handed = exposure(replay.lines, stage.shared_table, stage.least_holders, stage.memory) if stage.shares else None
    lines = replay.lines
    return {
        "accuracy": last_ten([line.accuracy for line in lines if not line.scored]),
        "epsilon": lines[-1].epsilon,
        "non_members": seen.non_members * len(stage.pools),
        "chance_of_linking": fmean([row["chance"] for row in links.values()]) if links else None,
        "handed_to_clients": sum(bool(event.to) for event in handed.handed) if handed else 0,
        "single_to_server": _single(stage, handed.holders, handed.to_server) if handed else 0,
        "clients": {name: list(value.values) for name, value in found.items()},
    }


def _single(stage: Stage, holders: Mapping[int, int], uploaded: int) -> int:
    """Prototypes of single clients that the server learns: all, or where it sees sums those of a single holder."""
    return holders.get(1, 0) if stage.summed else uploaded


def _row(row: tuple[str, ...], some: Sequence[Mapping[str, Any]], plan: Plan) -> dict[str, Any]:
    """A row over all seeds: clients of all of them are the units."""
    names = sorted({name for one in some for name in one["clients"]})
    shared = min(one["non_members"] for one in some)
    estimates = {}
    for name in names:
        values = [value for one in some for value in one["clients"].get(name, [])]
        estimates[name] = asdict(estimate(values, plan.seed, shared if "AUC" in name or "member" in name else 0))
    epsilons = [one["epsilon"] for one in some if one["epsilon"] is not None]
    chances = [one["chance_of_linking"] for one in some if one["chance_of_linking"] is not None]
    return {
        "words": list(row),
        "accuracies": [one["accuracy"] for one in some],
        "accuracy": fmean(one["accuracy"] for one in some),
        "epsilon": fmean(epsilons) if epsilons else None,
        "chance_of_linking": fmean(chances) if chances else None,
        "handed_to_clients": sum(one["handed_to_clients"] for one in some),
        "single_to_server": sum(one["single_to_server"] for one in some),
        "attacks": estimates,
    }
