"""What was measured? The result files, brought down to what advice needs: one small file that the package ships.

Cells are compared only if nothing but the algorithm and the seed differs; whether those who are not there were away or
lost their upload does not, since both give the same curves. Of a method's settings count its defaults, and
those that were tuned on held-out images (in `results/beyond/tuning`) and reported; others were tried on test images.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms import KINDS
from ..algorithms.interface import Algorithm
from ..base.config import KIND, Plain, parse_assignments, plain
from ..base.errors import UserError
from ..paper.results import Result, read_file
from ..population.splitting import KINDS as PARTITIONS
from ..runs.measures import second_half
from ..runs.settings import make_settings
from ..runs.sweep import options
from .setting import Setting, images_of, setting_of

APART = ("algorithm", "seed", "dropout")
SHIPPED = Path(__file__).with_name("measured.json")
TUNING, TUNED = "beyond/tuning", "beyond/report"
ROUNDS = {"paper": 200, TUNED: 40, "quick": 20}
"""Folders of results, the largest scale first, and how many rounds of a run are compared there."""
SMALLEST = [*ROUNDS][-1]
SCALES = {
    "paper": "the paper's scale: 200 rounds, 1000 images a client or all dealt out",
    TUNED: "a smaller scale: 40 rounds, 300 images a client (fewer of digits and letters) or all dealt out",
    "quick": "the quick scale: 20 rounds, small stand-ins for the data sets, 100 images a client or all dealt out",
}
TITLES = {"paper": "the paper's scale", TUNED: "the 40-round scale", "quick": "the quick scale"}


class Cell(NamedTuple):
    """One run: its file, its mean accuracy and swing over the second half, its mean accuracy over the last ten rounds;
    of FedDyn also the cloud model's over the second half."""

    file: str
    accuracy: float
    swing: float
    last: float
    cloud: float | None = None


@dataclass(frozen=True)
class Entry:
    """A method under a condition, by seed; `name` is as `rebafl sweep` reads it: `rebafl[mu=5.0]`."""

    name: str
    up: int
    down: int
    cells: dict[int, Cell] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.name.partition("[")[0]

    @property
    def algorithm(self) -> Algorithm:
        return algorithm_of(self.name)


@dataclass(frozen=True)
class Condition:
    """A setting at a scale, how many images a client has there, and all methods that were run under it."""

    scale: str
    setting: Setting
    images: int | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Measured:
    """All that is known; `seconds` of a method's round beside FedAvg's, rounds in turn: the ratio and its range."""

    conditions: tuple[Condition, ...]
    seconds: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@cache
def algorithm_of(name: str) -> Algorithm:
    (words,) = options(f"algorithm={name}")
    return make_settings(parse_assignments(words)).algorithm


def name_of(algorithm: Plain, instead_of: Plain | None = None) -> str:
    """An algorithm's kind, and those of its parameters that are not the defaults, nor what was set for it before."""
    kind = algorithm[KIND]
    usual = plain(KINDS[kind]())
    before = instead_of if instead_of and instead_of[KIND] == kind else usual
    own = [
        f"{key}={value}"
        for key, value in algorithm.items()
        if key != KIND and not value == usual.get(key) == before.get(key)
    ]
    return f"{kind}[{','.join(own)}]" if own else str(kind)


def collect(folder: Path, bench: Path) -> Measured:
    """From result files, and from the benchmark in which methods took turns."""
    found = [(scale, result, path) for scale in ROUNDS for result, path in _results(folder, scale)]
    found.sort(key=lambda each: each[1].settings["dropout"] == "lost")  # the same again, but not what people look for
    tuned = {name_of(result.settings["algorithm"]) for result, _ in _results(folder, TUNING)}
    tuned &= {name_of(result.settings["algorithm"]) for scale, result, _ in found if scale == TUNED}
    conditions: dict[str, Condition] = {}
    for scale, result, path in found:
        settings, name = make_settings(result.settings), name_of(result.settings["algorithm"])
        if "[" in name and name not in tuned:
            continue
        same = {key: value for key, value in settings.identity().items() if key not in APART}
        key = f"{scale} {json.dumps(same, sort_keys=True)}"
        condition = conditions.setdefault(key, Condition(scale, setting_of(settings), images_of(settings), ()))
        entry = next((entry for entry in condition.entries if entry.name == name), None)
        if entry is None:
            entry = Entry(name, round(result.measure("bytes_up")), round(result.measure("bytes_down")))
            entries = sorted((*condition.entries, entry), key=lambda each: each.name)
            conditions[key] = replace(condition, entries=tuple(entries))
        entry.cells.setdefault(result.seed, _cell(path.stem, result))
    return Measured(tuple(sorted(conditions.values(), key=order)), _seconds(bench))


def _results(folder: Path, scale: str) -> Iterator[tuple[Result, Path]]:
    """Finished runs with an algorithm of this package, as many rounds of each as the scale has."""
    for path in sorted((folder / scale).glob("*.json")):
        result = read_file(path)
        if result.rounds >= ROUNDS.get(scale, 0) and result.settings["algorithm"][KIND] in KINDS:
            yield result.cut(ROUNDS.get(scale, result.rounds)), path


def _cell(file: str, result: Result) -> Cell:
    accuracy, swing, last = (round(result.measure(name), 4) for name in ("second_half", "swing", "last10"))
    cloud = result.curves.get("cloud_accuracy", [None])
    return Cell(file, accuracy, swing, last, None if None in cloud else round(second_half(cloud), 4))


def order(condition: Condition) -> tuple[Any, ...]:
    """By scale, then by who holds what and who is there."""
    setting = condition.setting
    skew = (list(PARTITIONS).index(setting.skew), setting.holds, setting.lost)
    there = ((setting.held or 0) > 1, -(setting.share or 0), setting.held or 0, setting.clients)
    return (list(ROUNDS).index(condition.scale), skew, there, len(setting.other), setting.dataset, str(setting))


def _seconds(bench: Path) -> dict[str, tuple[float, float, float]]:
    """What `rebafl bench --methods` wrote; nothing if it was not run."""
    ratios = json.loads(bench.read_text(encoding="utf-8"))["to_fedavg"] if bench.exists() else {}
    return {
        name: (round(found["ratio"], 2), *(round(end, 2) for end in found["spread"])) for name, found in ratios.items()
    }


def as_json(measured: Measured) -> str:
    """The file that is shipped, one line for each method under a condition."""
    lines = json.dumps([asdict(condition) for condition in measured.conditions]).replace('{"name"', '\n{"name"')
    return f'{{"seconds": {json.dumps(measured.seconds)},\n"conditions": {lines}}}\n'


def shipped(path: Path = SHIPPED) -> Measured:
    """What this version of the package knows."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        conditions = [
            Condition(c["scale"], Setting(**c["setting"]), c["images"], tuple(_entry(entry) for entry in c["entries"]))
            for c in stored["conditions"]
        ]
        return Measured(tuple(conditions), {name: tuple(ratio) for name, ratio in stored["seconds"].items()})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); install the package again.") from None


def _entry(stored: Plain) -> Entry:
    return Entry(**{**stored, "cells": {int(seed): Cell(*cell) for seed, cell in stored["cells"].items()}})
