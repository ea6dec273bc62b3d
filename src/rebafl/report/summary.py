"""What came out? Runs read back, seeds of one setting put together, and said in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from ..config import Plain
from ..errors import UserError
from ..record import open_run
from ..settings import flatten

TAIL = 10  # rounds that the mean and spread at the end are taken over
NOTE = (
    "Accuracy is that of the global model on the whole test set, in percent. "
    "Best is chosen on the test set, so it flatters; last 10 is mean ± std over a run's last ten rounds."
)


@dataclass(frozen=True)
class Run:
    """One run directory, read back."""

    path: Path
    config: Plain
    rounds: list[dict[str, Any]]

    @property
    def accuracy(self) -> list[float]:
        return [float(line["accuracy"]) for line in self.rounds]

    def summary(self) -> dict[str, float | int]:
        tail = self.accuracy[-TAIL:]
        return {
            "rounds": len(self.rounds),
            "best": max(self.accuracy),
            "best_round": 1 + self.accuracy.index(max(self.accuracy)),
            "last": self.accuracy[-1],
            "last10_mean": fmean(tail),
            "last10_std": pstdev(tail),
            "worst_class_recall": min(r for r in self.rounds[-1]["recall"] if r is not None),
        }


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[Run, ...]

    def over_seeds(self, name: str) -> tuple[float, float]:
        """Mean and standard deviation over seeds of one entry of the runs' summaries."""
        values = [float(run.summary()[name]) for run in self.runs]
        return fmean(values), stdev(values) if len(values) > 1 else math.nan


def read_run(path: Path) -> Run:
    record = open_run(path)
    rounds = record.rounds()
    if not rounds:
        raise UserError(f"{path} has no finished round yet; go on with: rebafl run out={path}.")
    try:
        run = Run(path, record.config(), rounds)
        run.summary()
        for section in ("algorithm", "partition", "participation"):
            run.config[section]["kind"]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: its config.toml or rounds.jsonl lacks {error}.") from None
    return run


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Put seeds of one setting together; name each group by what sets it apart from the others."""
    flat = [flatten({**run.config, "seed": 0, "workers": 0}) for run in runs]
    groups: dict[str, list[int]] = {}
    for index, settings in enumerate(flat):
        groups.setdefault(str(sorted(settings.items(), key=str)), []).append(index)
    firsts = [flat[indices[0]] for indices in groups.values()]
    names = sorted({name for settings in firsts for name in settings})
    apart = [name for name in names if len({str(settings.get(name)) for settings in firsts}) > 1]
    labels = [_label(settings, apart) for settings in firsts]
    return [
        Group(label, tuple(runs[index] for index in indices))
        for label, indices in zip(labels, groups.values(), strict=True)
    ]


def _label(settings: Plain, apart: Sequence[str]) -> str:
    """The algorithm, and every other setting that differs between groups and that this one has."""
    kinds = [name for name in apart if name.endswith(".kind") and name != "algorithm.kind"]
    rest = [name for name in apart if name in settings and name != "algorithm.kind" and name not in kinds]
    same_algorithm = "algorithm.kind" not in apart
    rest = [name for name in rest if same_algorithm or not name.startswith("algorithm.")]
    words = [str(settings["algorithm.kind"])]
    words += [str(settings[name]) for name in kinds]
    words += [f"{name.removeprefix('algorithm.')}={settings[name]}" for name in rest]
    return ", ".join(words)


def comparison_table(groups: Sequence[Group]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, caption=NOTE, caption_justify="left")
    seeds = any(len(group.runs) > 1 for group in groups)
    table.add_column("run", no_wrap=True)
    for column in ("seeds",) * seeds + ("rounds", "best", "last", "last 10", "worst class"):
        table.add_column(column, justify="right", no_wrap=True)
    calmest = min(groups, key=lambda group: group.over_seeds("last10_std")[0])
    highest = max(groups, key=lambda group: group.over_seeds("last10_mean")[0])
    for group in groups:
        tail = f"{group.over_seeds('last10_mean')[0]:.2f} ± {group.over_seeds('last10_std')[0]:.2f}"
        marks = "bold" if len(groups) > 1 and group in (calmest, highest) else ""
        cells = [escape(group.label), str(len(group.runs))][: 1 + seeds]
        cells += [str(max(len(run.rounds) for run in group.runs))]
        cells += [_cell(group, "best"), _cell(group, "last"), f"[{marks}]{tail}[/]" if marks else tail]
        table.add_row(*cells, _cell(group, "worst_class_recall"))
    return table


def _cell(group: Group, name: str) -> str:
    mean, spread = group.over_seeds(name)
    return f"{mean:.2f}" if math.isnan(spread) else f"{mean:.2f} ± {spread:.2f}"


def comparison_json(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "label": group.label,
            "runs": [{"path": str(run.path), "seed": run.config.get("seed"), **run.summary()} for run in group.runs],
        }
        for group in groups
    ]
