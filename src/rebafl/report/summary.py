"""What came out? Runs read back, in numbers, and seeds of one setting put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from ..base.config import Plain
from ..base.errors import UserError
from ..runs import measures
from ..runs.events import RoundLine
from ..runs.origin import WENT_ON
from ..runs.record import open_run
from ..runs.settings import KINDS, flatten
from ..runs.tally import Tally, tally

OF_NO_GROUP = ("seed", "seeds", "workers", "keep_prototypes", "log")
"""Settings in which runs of one group may differ."""


@dataclass(frozen=True)
class Reached:
    """What a run took until it had some accuracy for the first time: rounds, bytes up and down of all, and seconds."""

    rounds: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Run:
    """One run directory, read back; `name` is what it is to be called, if not by its settings."""

    path: Path
    config: Plain
    rounds: Sequence[RoundLine]
    name: str = ""

    @property
    def accuracy(self) -> list[float]:
        return [line.accuracy for line in self.rounds]

    @cached_property
    def tally(self) -> Tally:
        return tally(self.rounds)

    @property
    def scored(self) -> list[float]:
        """The accuracies that were measured: of all rounds, unless only some were scored."""
        return measures.scored(self.accuracy, self.config.get("evaluate", {}).get("every", 1))

    @property
    def over_clients(self) -> Mapping[str, float]:
        """How good the model was for clients when that was measured last; empty if it was not."""
        return next((line.over_clients for line in reversed(self.rounds) if line.over_clients), {})

    def measure(self, name: str) -> float:
        """One of `measures.OF_ACCURACY`."""
        return measures.OF_ACCURACY[name](self.scored)

    @property
    def seed(self) -> tuple[object, ...]:
        """Everything random follows from it: runs that share it are compared pair by pair."""
        return self.config.get("seed"), *sorted(self.config.get("seeds", {}).items())

    def reached(self, percent: float) -> Reached | None:
        """What it took to get so far; None if it did not."""
        rounds = measures.rounds_to(self.accuracy, percent)
        if rounds is None:
            return None
        lines = self.rounds[:rounds]
        sent = sum(line.bytes_up + line.bytes_down for line in lines)
        return Reached(rounds, sent, round(sum(line.seconds for line in lines), 3))

    def summary(self) -> dict[str, float | int | None]:
        accuracy, scored, last = self.accuracy, self.scored, self.rounds[-1]
        return {
            "rounds": len(self.rounds),
            "best": measures.best(accuracy),
            "best_round": measures.best_round(accuracy),
            "last": measures.last(accuracy),
            "last10_mean": measures.last_ten(scored),
            "last10_std": measures.last_ten_std(scored),
            "second_half": measures.second_half(scored),
            "swing": measures.swing(scored),
            "loss": last.loss,
            "worst_class_recall": min(r for r in last.recall if r is not None),
            "seconds": round(sum(line.seconds for line in self.rounds), 3),
            **asdict(self.tally),
            **{f"clients_{name}": value for name, value in self.over_clients.items()},
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
        found = [run.summary().get(name) for run in self.runs]
        values = [math.nan if value is None else float(value) for value in found]
        return fmean(values), stdev(values) if len(values) > 1 else math.nan


def read_run(path: Path, name: str = "") -> Run:
    record = open_run(path)
    rounds = record.rounds()
    if not rounds:
        raise UserError(f"{path} has no finished round yet; resume it with: rebafl run out={path}.")
    try:
        run = Run(path, record.config(), rounds, name)
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
        seeds = [run.seed for run in group.runs]
        if len(set(seeds)) < len(seeds):
            return f"Several runs of {group.label} have the same seed; leave out all but one, or ± says too little."
    return ""


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Put seeds of one setting together; name each group by what sets it apart from the others."""
    flat = [flatten({name: value for name, value in run.config.items() if name not in OF_NO_GROUP}) for run in runs]
    groups: dict[str, list[int]] = {}
    for index, settings in enumerate(flat):
        groups.setdefault(str([runs[index].name, *sorted(settings.items(), key=str)]), []).append(index)
    firsts = [flat[indices[0]] for indices in groups.values()]
    names = sorted({name for settings in firsts for name in settings})
    apart = [name for name in names if len({str(settings.get(name)) for settings in firsts}) > 1]
    given = [runs[indices[0]].name for indices in groups.values()]
    labels = [
        ", ".join(filter(None, [name, _label(settings, apart, firsts) if given.count(name) > 1 or not name else ""]))
        for name, settings in zip(given, firsts, strict=True)
    ]
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
