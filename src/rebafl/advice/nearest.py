"""What was measured near a user's setting, and what does it say? The nearest condition of each data set and scale.

It has the fewest steps (`apart`), and is near if these are at most two; how long it was trained, and on how many images
a client, is said but not counted. The scale comes first whose rounds are nearest to the user's; of another the nearest
condition is added only if it is nearer, or if its best method was not run there. What to take is
what the nearest of them says in which more than a few methods were compared, rounds counted as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2

from ..algorithms.fedavg import FedAvg
from ..base.config import KIND, plain
from ..base.errors import UserError
from ..data import Data, is_here
from ..runs.experiment import load_data, prepare
from ..runs.settings import Settings
from .limits import competing, ruled_out
from .measured import ROUNDS, SMALLEST, TITLES, Condition, Entry, Measured, algorithm_of, name_of
from .setting import Setting, apart, images_of, setting_of
from .verdict import Verdict, judge, judge_stateless

NEAR = 2.0  # steps
PER_HALVING = 0.5  # steps for half or twice as many rounds, where one condition is to decide
SEEDS = range(3)


@dataclass(frozen=True)
class Near:
    """A condition that was measured, how far it is, and its verdict on the methods that a user can take.

    `sizes` are not counted as steps: the user's number of something over that of the condition, and both in words.
    """

    condition: Condition
    differences: tuple[tuple[float, str], ...]
    sizes: tuple[tuple[float, str], ...]
    verdict: Verdict
    stateless: Verdict | None

    @property
    def steps(self) -> float:
        return round(sum(steps for steps, _ in self.differences), 3)

    @property
    def is_near(self) -> bool:
        return self.steps <= NEAR

    @property
    def is_hint(self) -> bool:
        """Whether it is a few rounds on small stand-ins for the data, and the user's run is larger."""
        return self.condition.scale == SMALLEST and any(ratio > 1 for ratio, _ in self.sizes)

    @property
    def words(self) -> str:
        """How near it is, and in what it differs."""
        sizes = f", but for {' and '.join(words for _, words in self.sizes)}" if self.sizes else ""
        if not self.differences:
            return f"like yours{sizes}"
        differences = "; ".join(words for _, words in self.differences)
        return f"{'near yours' if self.is_near else 'not near yours'} ({self.steps:.1f} steps): {differences}{sizes}"

    @property
    def source(self) -> str:
        """Where it is from, for one line: how sure, of how many methods, at which scale, how near."""
        near = f"{self.steps:.1f} steps from yours" if self.differences else "like yours"
        near += " but for its size" if self.sizes else ""
        dataset, scale = self.condition.setting.dataset, TITLES[self.condition.scale]
        falls = "; it falls" if self.verdict.falls else ""
        return f"{self.verdict.lead}{falls}; {dataset} at {scale}, {near}"

    def contradicts(self, other: Near) -> bool:
        """Whether no method is named by both."""
        return {entry.name for entry in self.verdict.level}.isdisjoint(entry.name for entry in other.verdict.level)

    def lacks(self, entries: Sequence[Entry]) -> str:
        """Which of these methods, with any settings, were not run there; in words, or ''."""
        run = {entry.kind for entry in self.condition.entries}
        missing = " and ".join(entry.name for entry in entries if entry.kind not in run)
        return f"; {missing} not run there" if missing else ""


@dataclass(frozen=True)
class Advice:
    """All that is to be said to a user; `found` holds one condition that is not near, if none is.

    `found` begins with the one that decides. `again` measures it in the user's own setting; `refused` is why that
    cannot be run as it is, or ''.
    """

    setting: Setting
    found: tuple[Near, ...]
    excluded: dict[str, str]
    methods: tuple[str, ...]
    again: str
    refused: str

    @property
    def is_near(self) -> bool:
        return any(near.is_near for near in self.found)

    @property
    def take(self) -> str:
        """In one line, with what it rests on; and which conditions near it say something else."""
        if not self.is_near:
            return "Nothing near it was measured. The nearest, which says little about yours:"
        first, *rest = self.found
        how = "Of the two that were compared take" if first.verdict.few else "Take"
        take = f"{'Only a hint, of few rounds on small data:' if first.is_hint else how} {first.verdict.names}"
        others: dict[str, str] = {}
        for near in rest:
            if near.contradicts(first):
                others.setdefault(near.verdict.names, near.source + near.lacks(first.verdict.level))
        but = "".join(f" But {name} ({source})." for name, source in others.items())
        return f"{take} ({first.source}).{but}{' Measure it.' if others else ''}"

    @property
    def runs(self) -> int:
        """How many `again` makes."""
        return len(self.methods) * len(SEEDS)


def advise(settings: Settings, words: Sequence[str], measured: Measured, no_state: bool = False) -> Advice:
    """`words` are the user's own, for the command that measures it. Data that are here must be readable."""
    data = load_data(settings, say=lambda text: None) if is_here(settings.dataset) else None
    mine = setting_of(settings, observe=True)
    names = {entry.name: entry.algorithm for condition in measured.conditions for entry in competing(condition)}
    reasons = {name: ruled_out(algorithm, settings, no_state) for name, algorithm in sorted(names.items())}
    excluded = {name: reason for name, reason in reasons.items() if reason}
    if names and len(excluded) == len(names):
        raise UserError(f"No method that was measured can be run so: {next(iter(excluded.values())).rstrip('.')}.")
    judged = [near for condition in measured.conditions if (near := _near(mine, condition, excluded, settings))]
    known = sorted({near.condition.setting.dataset for near in judged})
    datasets = [mine.dataset] if mine.dataset in known else known
    shorter = {scale: abs(log2(settings.rounds / rounds)) for scale, rounds in ROUNDS.items()}
    found = [near for dataset in datasets for near in _said(judged, dataset, sorted(shorter, key=lambda s: shorter[s]))]
    near_ones = sorted((near for near in found if near.is_near), key=lambda near: _rank(near, shorter))
    found = near_ones or sorted(found, key=lambda near: near.steps)[:1]
    good = {entry.name for near in near_ones for entry in (*near.verdict.level, near.verdict.leads[0].over)}
    good = good or {near.verdict.best.name for near in judged}
    own = settings.plain()["algorithm"]  # a settings file may have set what the sweep must set back
    named = [
        name_of({KIND: name.partition("[")[0], **plain(algorithm_of(name))}, own)
        for name in sorted({"fedavg", *good} - excluded.keys())
    ]
    return Advice(mine, tuple(found), excluded, tuple(named), command(words, named), _refused(settings, data))


def _rank(near: Near, shorter: Mapping[str, float]) -> tuple[float, ...]:
    """What decides comes first: those of more than a few methods, the nearest, those of the most methods and seeds."""
    steps, verdict = near.steps + PER_HALVING * shorter[near.condition.scale], near.verdict
    return verdict.few, steps, -verdict.compared, -len(verdict.leads[0].differences)


def _refused(settings: Settings, data: Data | None) -> str:
    """What a run of FedAvg would say to these settings, if its data are here."""
    try:
        if data:
            prepare(replace(settings, algorithm=FedAvg()), data, say=lambda text: None)
    except UserError as error:
        return str(error)
    return ""


def _near(mine: Setting, condition: Condition, excluded: dict[str, str], settings: Settings) -> Near | None:
    entries = [entry for entry in competing(condition) if entry.name not in excluded]
    differences, verdict = tuple(apart(mine, condition.setting)), judge(entries)
    sizes = tuple(_sizes(condition, settings))
    return Near(condition, differences, sizes, verdict, judge_stateless(entries)) if verdict else None


def _sizes(condition: Condition, settings: Settings) -> Iterator[tuple[float, str]]:
    """Rounds and images a client that are twice or half the user's, or farther from them."""
    rounds = ROUNDS[condition.scale], "rounds", settings.rounds
    images = condition.images, "images a client", images_of(settings)
    for measured, of, own in (rounds, images):
        if measured and own and abs(log2(own / measured)) >= 1:
            yield own / measured, f"its {measured} {of} (yours {own})"


def _said(judged: Sequence[Near], dataset: str, scales: Sequence[str]) -> list[Near]:
    """What is said of a data set, scale by scale: the nearest, and near ones of more than a few methods against it."""
    said: list[Near] = []
    for scale in scales:
        here = [n for n in judged if (n.condition.scale, n.condition.setting.dataset) == (scale, dataset)]
        here.sort(key=lambda near: near.steps)
        if here and (not said or _adds(here[0], said)):
            said.append(here[0])
            said += [near for near in here[1:] if near.is_near and not near.verdict.few and near.contradicts(here[0])]
    return said


def _adds(near: Near, before: Sequence[Near]) -> bool:
    run = {entry.kind for one in before for entry in one.condition.entries}
    return near.steps < min(one.steps for one in before) or near.verdict.best.kind not in run


def command(words: Sequence[str], names: Sequence[str]) -> str:
    """What a user runs to know it for sure: FedAvg and what did well nearby, or anywhere if nothing is near."""
    mine = [word for word in words if not re.match(r"(algorithm\b.*|seed|out)=", word)]
    seeds = f"seed={SEEDS[0]}..{SEEDS[-1]}"
    return shlex.join(["rebafl", "sweep", *mine, f"algorithm={','.join(names)}", seeds, "out=runs/which"])
