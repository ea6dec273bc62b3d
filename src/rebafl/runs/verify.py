"""Does a run come out again? Its settings are run once more, and every recorded number is compared to the bit.

Compared are all recorded curves, of a run directory each quantity in `rounds.jsonl`; if all its rounds were repeated,
also the last weights. Seconds are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..base.config import Plain
from ..base.errors import UserError, exists
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import check_name
from .environment import machine
from .events import Event, Listener, RoundLine, RunStarted, nobody
from .opening import SIMULATION, kind_of_run
from .origin import OWN_CODE, latest, own_code
from .record import Record, open_run
from .settings import Settings, flatten, stored_settings
from .simulate import OWN_MODEL, simulate

SECONDS = "seconds"
Curves = Mapping[str, Sequence[Any]]
"""By name, one value per round."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as it was recorded; `curves_of` makes the same curves of the rounds of another."""

    path: Path
    settings: Settings
    environment: Plain
    curves: Curves
    curves_of: Callable[[Sequence[RoundLine]], Curves]
    record: Record | None = None

    @property
    def name(self) -> str:
        return self.path.resolve().name.removesuffix(".json")

    @property
    def rounds(self) -> int:
        return len(self.curves["accuracy"])

    def seconds(self, rounds: int) -> float:
        """What its first rounds took when they were recorded."""
        return float(sum(self.curves[SECONDS][:rounds]))

    def repeated_settings(self, rounds: int) -> Settings:
        """The settings of its first rounds (0: of all), on all cores of this machine."""
        return replace(self.settings, rounds=min(rounds or self.rounds, self.rounds), workers=0, engine="local")


@dataclass(frozen=True)
class Difference:
    """The first value that differs; `None` where there is none."""

    round: int
    quantity: str
    recorded: Any
    found: Any


@dataclass(frozen=True)
class Repetition:
    """What was the same in a repetition, and what was not.

    `largest`: of each quantity that differs, by how much at most; None if it is not of numbers alone. `weights`:
    how far the last weights are apart; None if they were not compared. `facts`: facts of the machine and the code that
    differ, as they were recorded and as they are now.
    """

    path: Path
    rounds: int
    of: int
    first: Difference | None
    largest: Mapping[str, float | None] = field(default_factory=dict)
    weights: float | None = None
    facts: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        return self.first is None


def read_directory(path: Path) -> RecordedRun:
    record = open_run(path)
    lines = record.rounds()
    if not lines:
        raise UserError(f"{path} has no finished round yet; resume it with: rebafl run out={path}.")
    return RecordedRun(path, stored_settings(record.config()), record.environment(), _by_name(lines), _by_name, record)


def _by_name(lines: Sequence[RoundLine]) -> Curves:
    rows = [line.plain() for line in lines]
    return {name: [row.get(name) for row in rows] for name in {name: None for row in rows for name in row}}


def check_repeatable(run: RecordedRun) -> None:
    """Refuse what cannot be run again on this machine."""
    path, settings, facts = run.path, run.settings, run.environment
    if (kind := kind_of_run(facts)) != SIMULATION:
        raise UserError(f"{path} is the run of a {kind}, whose machines and data are elsewhere; run it again there.")
    if settings.model.kind == OWN_MODEL:
        raise UserError(f"{path} was run from Python with a model of its own; run it again there, and compare the two.")
    try:
        check_name(settings.dataset)
    except UserError:
        if ":" in settings.dataset:  # own code: what is wrong with it was said
            raise
        raise UserError(
            f"{path} was run on {settings.dataset!r}, which is not here; if these were data of your own in Python, "
            "run it again there, and compare the two."
        ) from None
    if facts.get("settings_sha256", settings.digest) != settings.digest:
        raise UserError(f"{path}: its settings, or a file that they name, were changed since; restore them.")


def repeat(run: RecordedRun, rounds: int, out: Path, listen: Listener = nobody, say: Say = print) -> Repetition:
    """Run the first rounds again (0: all of them) in a new directory, and compare."""
    settings = run.repeated_settings(rounds)
    if exists(out):
        raise UserError(f"{out} is there already; choose another --work, so that nothing is taken for the repetition.")

    def check_data(event: Event) -> None:
        if isinstance(event, RunStarted):
            _check_data(run, Record(out))
        listen(event)

    record = simulate(settings, out, listen=check_data, say=say)
    first, largest = compare(run.curves, run.curves_of(record.rounds()), settings.rounds)
    whole = run.record is not None and settings.rounds == run.rounds
    distance = _distance(run.record.server(), record.server()) if run.record and whole else None
    if first is None and distance:
        first = Difference(settings.rounds, "weights", None, None)
    return Repetition(
        run.path, settings.rounds, run.rounds, first, largest, distance, other_facts(run.environment, run.settings)
    )


def _check_data(run: RecordedRun, record: Record) -> None:
    recorded = run.environment.get("data_sha256")
    if recorded and recorded != record.environment()["data_sha256"]:
        raise UserError(f"{run.path} was run on other data than {run.settings.dataset} holds here; restore the data.")


def compare(recorded: Curves, repeated: Curves, rounds: int) -> tuple[Difference | None, dict[str, float | None]]:
    """The first of the recorded values that differs, and by how much each quantity differs at most."""
    first, largest = None, dict[str, float | None]()
    for number in range(rounds):
        for name in (name for name in recorded if name != SECONDS):
            old, new = recorded[name][number], repeated[name][number] if name in repeated else None
            if _text(old) == _text(new):
                continue
            first = first or Difference(number + 1, name, old, new)
            gap, before = _gap(old, new), largest.get(name, 0.0)
            largest[name] = None if gap is None or before is None else max(gap, before)
    return first, largest


def _text(value: Any) -> str:
    """JSON writes the shortest digits that give a number back, so two texts are alike where all bits are."""
    return json.dumps(value, sort_keys=True)


def _gap(a: Any, b: Any) -> float | None:
    """The largest difference between numbers; None where one has something else or nothing."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        gaps = [_gap(x, y) for x, y in zip(a, b, strict=True) if x != y]
        return None if None in gaps else max((gap for gap in gaps if gap is not None), default=0.0)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b))
    return abs(float(a) - float(b)) if numbers else None


def _distance(recorded: Mapping[str, Tensors], repeated: Mapping[str, Tensors]) -> float:
    """The largest difference between two servers; infinite if their names or shapes differ."""
    old, new = (
        {(group, name): tensor for group, tensors in server.items() for name, tensor in tensors.items()}
        for server in (recorded, repeated)
    )
    if old.keys() != new.keys() or any(old[name].shape != new[name].shape for name in old):
        return float("inf")
    unlike = [name for name in old if not torch.equal(old[name], new[name])]
    return max((float((old[name].double() - new[name].double()).abs().max()) for name in unlike), default=0.0)


def other_facts(environment: Plain, settings: Settings) -> dict[str, tuple[Any, Any]]:
    """What a record says of its machine, code and versions that differs from this machine, with both values."""
    recorded, now = flatten(latest(environment)), flatten({**machine(), OWN_CODE: own_code(settings)})
    return {name: (recorded[name], value) for name, value in now.items() if recorded.get(name, value) != value}
