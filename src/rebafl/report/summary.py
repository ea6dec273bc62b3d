"""What came out? Runs read back, seeds of one setting grouped, and compared in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from ..base.config import Plain
from ..base.errors import UserError
from ..runs import measures
from ..runs.events import RoundLine
from ..runs.origin import WENT_ON
from ..runs.record import open_run
from ..runs.settings import KINDS, flatten
from ..runs.tally import Tally, tally

NOTE = (
    "Percent, of the global model on the whole test set. Best is chosen on the test set, so it is too good. "
    "Worst class: the lowest recall in the last round. "
)
ONE_SEED = "Last 10: mean ± std over a run's last ten rounds."
NOT_USED = {
    "refused": "Refused: uploads that were not used.",
    "no answer": "No answer: clients that were asked and did not answer.",
    "no update": "No update: rounds that left the model unchanged.",
}
MANY_SEEDS = "± is the std over seeds; spread is the std over a run's last ten rounds, averaged over seeds."


@dataclass(frozen=True)
class Run:
    """One run directory, read back."""

    path: Path
    config: Plain
    rounds: Sequence[RoundLine]

    @property
    def accuracy(self) -> list[float]:
        return [line.accuracy for line in self.rounds]

    @cached_property
    def tally(self) -> Tally:
        return tally(self.rounds)

    def summary(self) -> dict[str, float | int]:
        accuracy = self.accuracy
        return {
            "rounds": len(self.rounds),
            "best": measures.best(accuracy),
            "best_round": measures.best_round(accuracy),
            "last": accuracy[-1],
            "last10_mean": measures.last_ten(accuracy),
            "last10_std": measures.last_ten_std(accuracy),
            "worst_class_recall": min(r for r in self.rounds[-1].recall if r is not None),
            **asdict(self.tally),
        }


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[Run, ...]

    @property
    def tally(self) -> Tally:
        return sum((run.tally for run in self.runs), Tally())

    def over_seeds(self, name: str) -> tuple[float, float]:
        """Mean and standard deviation over seeds of one entry of the runs' summaries."""
        values = [float(run.summary()[name]) for run in self.runs]
        return fmean(values), stdev(values) if len(values) > 1 else math.nan


def read_run(path: Path) -> Run:
    record = open_run(path)
    rounds = record.rounds()
    if not rounds:
        raise UserError(f"{path} has no finished round yet; resume it with: rebafl run out={path}.")
    try:
        run = Run(path, record.config(), rounds)
        run.summary()
        for section in KINDS:
            run.config[section]["kind"]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: its config.toml or rounds.jsonl lacks {error}.") from None
    return run


def mixed_bits(groups: Sequence[Group]) -> str:
    """A warning if last bits were computed in different ways: small differences may then come from the machine."""
    kinds: dict[str, str] = {}
    for run in (run for group in groups for run in group.runs):
        facts = open_run(run.path).environment()
        for stage in (facts, *facts.get(WENT_ON, [])):
            if kind := stage.get("bits"):  # older records do not say
                kinds.setdefault(str(kind), str(run.path))
    named = "; ".join(f"{kind} ({path})" for kind, path in kinds.items())
    return (
        f"The runs have different kinds of bits, so that equal settings may differ: {named}." if len(kinds) > 1 else ""
    )


def repeated_seeds(groups: Sequence[Group]) -> str:
    """A warning if runs of one setting have the same seed: they are one result, and ± then says too little."""
    for group in groups:
        seeds = [run.config.get("seed") for run in group.runs]
        if len(set(seeds)) < len(seeds):
            return f"Several runs of {group.label} have the same seed; leave out all but one, or ± says too little."
    return ""


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Put seeds of one setting together; name each group by what sets it apart from the others."""
    flat = [flatten({**run.config, "seed": 0, "workers": 0, "keep_prototypes": False, "log": ""}) for run in runs]
    groups: dict[str, list[int]] = {}
    for index, settings in enumerate(flat):
        groups.setdefault(str(sorted(settings.items(), key=str)), []).append(index)
    firsts = [flat[indices[0]] for indices in groups.values()]
    names = sorted({name for settings in firsts for name in settings})
    apart = [name for name in names if len({str(settings.get(name)) for settings in firsts}) > 1]
    labels = [_label(settings, apart, firsts) for settings in firsts]
    return [
        Group(label, tuple(runs[index] for index in indices))
        for label, indices in zip(labels, groups.values(), strict=True)
    ]


def _label(settings: Plain, apart: Sequence[str], groups: Sequence[Plain]) -> str:
    """The algorithm, and every other setting that sets this group apart from others of the same kind."""
    words = [str(settings["algorithm.kind"])]
    for name in apart:
        kind = name.rpartition(".")[0] + ".kind"
        rivals = [group for group in groups if name == kind or group.get(kind) == settings.get(kind)]
        differs = len({str(group.get(name)) for group in rivals}) > 1
        if name != "algorithm.kind" and differs and settings.get(name, "") != "":
            words.append(f"{name.removesuffix('.kind').removeprefix('algorithm.')}={settings[name]}")
    return ", ".join(words)


def comparison_table(groups: Sequence[Group]) -> Table:
    seeds = any(len(group.runs) > 1 for group in groups)
    troubles = [title for title in NOT_USED if any(title in group.tally.words() for group in groups)]
    notes = [NOTE + (MANY_SEEDS if seeds else ONE_SEED), *(NOT_USED[title] for title in troubles)]
    notes += [f"WARNING, {escape(group.label)}: {group.tally.warning}" for group in groups if group.tally.warning]
    table = Table(box=box.SIMPLE_HEAD, caption=" ".join(notes), caption_justify="left")
    table.add_column("run", max_width=60, overflow="fold")
    spread = ("spread",) if seeds else ()
    scores = ("rounds", "best", "last", "last 10", *spread, "worst class")
    for column in (*(("seeds",) if seeds else ()), *scores, *troubles):
        table.add_column(column, justify="right", no_wrap=True)
    highest = max(groups, key=lambda group: group.over_seeds("last10_mean")[0])
    for group in groups:
        within = f"{group.over_seeds('last10_std')[0]:.2f}"
        tail = _cell(group, "last10_mean") if seeds else f"{_cell(group, 'last10_mean')} ± {within}"
        cells = [escape(group.label), *([str(len(group.runs))] if seeds else [])]
        cells += [str(max(len(run.rounds) for run in group.runs)), _cell(group, "best"), _cell(group, "last"), tail]
        cells += [within] if seeds else []
        bold = "bold" if len(groups) > 1 and group is highest else ""
        counts = [group.tally.words().get(title, "") for title in troubles]
        doubtful = "red" if group.tally.warning else ""
        table.add_row(*cells, _cell(group, "worst_class_recall"), *counts, style=f"{bold} {doubtful}".strip())
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
