"""Does a result come out again? Its settings are run anew beside it, and every recorded number compared to the bit.

There are two kinds of record: of a run directory each line of `rounds.jsonl` and the last weights are compared, of a
result file of `rebafl paper` each curve. Seconds are left out.
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
from ..base.rng import generator
from ..base.tensors import Tensors
from ..data import check_name
from ..runs.environment import machine
from ..runs.events import Event, Listener, RoundLine, RunStarted, nobody
from ..runs.experiment import Say
from ..runs.origin import OWN_CODE, latest, own_code
from ..runs.record import Record, open_run
from ..runs.rounds import SIMULATION, kind_of_run
from ..runs.settings import Settings, flatten, stored_settings
from ..runs.simulate import OWN_MODEL, simulate
from .items import Item, Scale, cells_of
from .results import curves_of, file_of, read_file, seeds_kept

SECONDS = "seconds"
Curves = Mapping[str, Sequence[Any]]
"""By name, a value a round."""


@dataclass(frozen=True)
class Kept:
    """A run as its record has it; `curves_of` makes the same of the lines of another."""

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

    def again(self, rounds: int) -> Settings:
        """The settings of its first rounds (0: of all), on all cores of this machine."""
        return replace(self.settings, rounds=min(rounds or self.rounds, self.rounds), workers=0, engine="local")


@dataclass(frozen=True)
class Difference:
    """The first number that is another one; `None` where there is none."""

    round: int
    quantity: str
    recorded: Any
    found: Any


@dataclass(frozen=True)
class Verdict:
    """What became of a repetition.

    `largest`: of each quantity that differs, by how much at most; None if it is not of numbers alone. `weights`:
    how far the last weights are apart; None if they were not compared. `facts`: what was recorded otherwise than it
    is here.
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


def read(path: Path) -> Kept:
    """A run directory or a result file."""
    kept = _directory(path) if path.is_dir() else _file(path)
    settings, facts = kept.settings, kept.environment
    if (kind := kind_of_run(facts)) != SIMULATION:
        raise UserError(f"{path} is the run of a {kind}, whose machines and data are elsewhere; run it again there.")
    if settings.model.kind == OWN_MODEL:
        raise UserError(f"{path} was run from Python with a model of its own; run it again there, and compare the two.")
    try:
        check_name(settings.dataset)
    except UserError:
        raise UserError(
            f"{path} was run on {settings.dataset!r}, which is not here; if these were data of your own in Python, "
            "run it again there, and compare the two."
        ) from None
    if facts.get("settings_sha256", settings.digest) != settings.digest:
        raise UserError(f"{path}: its settings, or a file that they name, were changed since; restore them.")
    return kept


def _directory(path: Path) -> Kept:
    record = open_run(path)
    lines = record.rounds()
    if not lines:
        raise UserError(f"{path} has no finished round yet; go on with: rebafl run out={path}.")
    return Kept(path, stored_settings(record.config()), record.environment(), _by_name(lines), _by_name, record)


def _file(path: Path) -> Kept:
    try:
        result = read_file(path)
    except ValueError as error:
        raise UserError(f"{path} is neither a run directory nor a result file ({error}).") from None
    return Kept(path, stored_settings(result.settings), result.environment, result.curves, curves_of)


def _by_name(lines: Sequence[RoundLine]) -> Curves:
    rows = [line.plain() for line in lines]
    return {name: [row.get(name) for row in rows] for name in {name: None for row in rows for name in row}}


def choose(items: Sequence[Item], scale: Scale, results: Path, count: int, seed: int) -> list[Path]:
    """Some of the finished cells' files: the same for the same seed."""
    cells = cells_of(items, scale, seeds_kept(scale.name, results), (), ())
    paths = sorted({path for cell in cells if exists(path := file_of(cell, results))})
    if not paths:
        raise UserError(f"{results} holds no finished cell of these items at scale {scale.name}.")
    chosen = generator(seed, "verify").choice(len(paths), size=min(count, len(paths)), replace=False)
    return [paths[index] for index in sorted(chosen)]


def repeat(kept: Kept, rounds: int, out: Path, listen: Listener = nobody, say: Say = print) -> Verdict:
    """Run the first rounds again (0: all of them) in a new directory, and compare."""
    settings = kept.again(rounds)
    if exists(out):
        raise UserError(f"{out} is there already; choose another --work, so that nothing is taken for the repetition.")

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted):
            _same_data(kept, Record(out))
        listen(event)

    record = simulate(settings, out, listen=hear, say=say)
    first, largest = compare(kept.curves, kept.curves_of(record.rounds()), settings.rounds)
    whole = kept.record is not None and settings.rounds == kept.rounds
    apart = _apart(kept.record.server(), record.server()) if kept.record and whole else None
    if first is None and apart:
        first = Difference(settings.rounds, "weights", None, None)
    return Verdict(
        kept.path, settings.rounds, kept.rounds, first, largest, apart, other_facts(kept.environment, kept.settings)
    )


def _same_data(kept: Kept, record: Record) -> None:
    recorded = kept.environment.get("data_sha256")
    if recorded and recorded != record.environment()["data_sha256"]:
        raise UserError(f"{kept.path} was run on other data than {kept.settings.dataset} holds here; restore the data.")


def compare(recorded: Curves, found: Curves, rounds: int) -> tuple[Difference | None, dict[str, float | None]]:
    """The first of the recorded values that is another one, and by how much each quantity differs at most."""
    first, largest = None, dict[str, float | None]()
    for number in range(rounds):
        for name in (name for name in recorded if name != SECONDS):
            there, here = recorded[name][number], found[name][number] if name in found else None
            if _text(there) == _text(here):
                continue
            first = first or Difference(number + 1, name, there, here)
            gap, before = _gap(there, here), largest.get(name, 0.0)
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
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (a, b))
    return abs(float(a) - float(b)) if numbers else None


def _apart(recorded: Mapping[str, Tensors], found: Mapping[str, Tensors]) -> float:
    """The largest difference between two servers; infinite if they do not even look alike."""
    there, here = ({(g, n): t for g, some in s.items() for n, t in some.items()} for s in (recorded, found))
    if there.keys() != here.keys() or any(there[name].shape != here[name].shape for name in there):
        return float("inf")
    unlike = [name for name in there if not torch.equal(there[name], here[name])]
    return max((float((there[n].double() - here[n].double()).abs().max()) for n in unlike), default=0.0)


def other_facts(environment: Plain, settings: Settings) -> dict[str, tuple[Any, Any]]:
    """What a record says of its machine, code and versions that is otherwise here."""
    recorded, here = flatten(latest(environment)), flatten({**machine(), OWN_CODE: own_code(settings)})
    return {name: (recorded[name], value) for name, value in here.items() if recorded.get(name, value) != value}
