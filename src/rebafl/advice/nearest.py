"""What was measured near a user's setting, and what does it say?

A condition is near that is at most two steps away (`apart`), on the user's own data set, or on any if none is near
there; how long it was trained, and on how many images a client, is said but not counted. What to take is what the
nearest firm one says, rounds counted as well: one of more than a few methods that is no hint. Others are shown with it
that are nearer than all before, the first whose split is of the user's kind, whose best method was not run in these,
or that object: none of their best methods is the same, and they weigh as much.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log2

from ..algorithms.fedavg import FedAvg
from ..base.config import KIND, plain
from ..base.errors import UserError
from ..data import Data, is_here
from ..models.choice import KINDS as MODELS
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

    `sizes` are not counted as steps: the user's number of something over that of the condition, and both in words; nor
    are `halvings`, how often the larger number of rounds must be halved to be the smaller. `own_split`: who holds what
    is of the user's kind.
    """

    condition: Condition
    own_split: bool
    differences: tuple[tuple[float, str], ...]
    sizes: tuple[tuple[float, str], ...]
    halvings: float
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
        how_far = f"{self.steps:.1f} steps" if isfinite(self.steps) else "how far cannot be told"
        return f"{'near yours' if self.is_near else 'not near yours'} ({how_far}): {differences}{sizes}"

    @property
    def source(self) -> str:
        """Where it is from, for one line: how sure, of how many methods, at which scale, how near."""
        near = f"{self.steps:.1f} steps from yours" if self.differences else "like yours"
        near += " but for its size" if self.sizes else ""
        setting, scale = self.condition.setting, TITLES[self.condition.scale]
        of = " ".join([setting.dataset, *(f"{name}={value}" for name, value in setting.other.items())])
        falls = "; it falls" if self.verdict.falls else ""
        return f"{self.verdict.lead}{falls}; {of} at {scale}, {near}"

    @property
    def distance(self) -> tuple[float, float]:
        """What is as many steps away is nearer if its rounds are more like the user's."""
        return self.steps, self.halvings

    @property
    def is_firm(self) -> bool:
        """Whether more than a few methods were compared, and it is no hint."""
        return not self.verdict.few and not self.is_hint

    @property
    def rank(self) -> tuple[float, ...]:
        """What decides is smallest: what is firm, then hints; the nearest, of the most methods and seeds."""
        steps, leads = self.steps + PER_HALVING * self.halvings, self.verdict.leads
        return not self.is_firm, self.verdict.few, steps, -self.verdict.compared, -len(leads[0].differences)

    def objects_to(self, first: Near) -> bool:
        """Whether it names none of the same methods, and weighs as much; a hint does where it is nearer."""
        weighs = self.is_firm or not first.is_firm or (not self.verdict.few and self.distance < first.distance)
        return weighs and self.kinds.isdisjoint(first.kinds)

    @property
    def kinds(self) -> set[str]:
        """The best methods, whatever their settings."""
        return {entry.kind for entry in self.verdict.level}

    def lacks(self, entries: Sequence[Entry]) -> str:
        """Which of these methods, with any settings, were not run there; in words, or ''."""
        run = {entry.kind for entry in self.condition.entries}
        missing = dict.fromkeys(entry.name for entry in entries if entry.kind not in run)
        return f"; {' and '.join(missing)} not run there" if missing else ""


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
        others = [near for near in rest if near.objects_to(first)]
        but = ""
        for near in others:
            name = f"{', as a hint, ' if near.is_hint and not first.is_hint else ' '}{near.verdict.names}"
            but += f" But{name} ({near.source}{near.lacks(first.verdict.level)})."
        missing = first.lacks([entry for near in others for entry in near.verdict.level])
        return f"{_take(first)} ({first.source}{missing}).{but}{' Measure it.' if others else ''}"

    @property
    def runs(self) -> int:
        """How many `again` makes."""
        return len(self.methods) * len(SEEDS)


def advise(settings: Settings, words: Sequence[str], measured: Measured, no_state: bool = False) -> Advice:
    """`words` are the user's own, for the command that measures it. Data that are here must be readable."""
    MODELS.find(settings.model.kind)  # whatever it is given, a model must be there
    data = load_data(settings, say=lambda text: None) if is_here(settings.dataset) else None
    mine, images = setting_of(settings, observe=True, data=data), images_of(settings, data)
    excluded = _excluded(measured, settings, no_state)
    judged = [
        Near(
            condition,
            condition.setting.skew == mine.skew,
            tuple(apart(mine, condition.setting)),
            *_sizes(condition, settings.rounds, images),
            *verdicts,
        )
        for condition in measured.conditions
        if (verdicts := _verdicts(condition, excluded))
    ]
    near = [one for one in judged if one.is_near]
    near = [one for one in near if one.condition.setting.dataset == mine.dataset] or near
    found = _shown(sorted(near, key=lambda one: one.rank)) or sorted(judged, key=lambda one: one.distance)[:1]
    good = {entry.name for one in found for entry in (*one.verdict.level, one.verdict.leads[0].over)}
    good = good if near else {one.verdict.best.name for one in judged}
    methods = _named({"fedavg", *good} - excluded.keys(), settings)
    return Advice(mine, tuple(found), excluded, methods, command(words, methods), _refused(settings, data))


def _excluded(measured: Measured, settings: Settings, no_state: bool) -> dict[str, str]:
    """The methods that cannot be had with these settings, and why; they may not be all."""
    names = {entry.name: entry.algorithm for condition in measured.conditions for entry in competing(condition)}
    reasons = {name: ruled_out(algorithm, settings, no_state) for name, algorithm in sorted(names.items())}
    excluded = {name: reason for name, reason in reasons.items() if reason}
    if names and len(excluded) == len(names):
        raise UserError(f"No method that was measured can be run so: {next(iter(excluded.values())).rstrip('.')}.")
    return excluded


def _verdicts(condition: Condition, excluded: dict[str, str]) -> tuple[Verdict, Verdict | None] | None:
    """On the methods that can be had, and on those of them whose clients keep nothing; None if nothing was compared."""
    entries = [entry for entry in competing(condition) if entry.name not in excluded]
    verdict = judge(entries)
    return (verdict, judge_stateless(entries)) if verdict else None


def _shown(ranked: Sequence[Near]) -> list[Near]:
    """The first, which decides, and those that add something to what is shown before them."""
    shown: list[Near] = []
    for near in ranked:
        if not shown or _adds(near, shown):
            shown.append(near)
    return shown


def _adds(near: Near, shown: Sequence[Near]) -> bool:
    run = {entry.kind for one in shown for entry in one.condition.entries}
    nearer = near.distance < min(one.distance for one in shown)
    splits = near.own_split and not any(one.own_split for one in shown)
    objects = near.objects_to(shown[0]) and near.kinds not in [one.kinds for one in shown]
    return nearer or splits or objects or near.verdict.best.kind not in run


def _take(first: Near) -> str:
    """What decides, put as firmly as it is."""
    names = first.verdict.names
    if first.is_hint:
        return f"Only a hint, from a smaller run: {names}"
    if first.verdict.few:
        level = len(first.verdict.level) > 1
        return f"Only two were compared, {f'and neither leads: {names}' if level else f'of which {names} was ahead'}"
    return f"Take {names}"


def _named(names: Collection[str], settings: Settings) -> tuple[str, ...]:
    """Methods as a sweep takes them; a settings file may have set what the sweep must set back."""
    own = settings.plain()["algorithm"]
    kinds = ({KIND: name.partition("[")[0], **plain(algorithm_of(name))} for name in sorted(names))
    return tuple(name_of(kind, own) for kind in kinds)


def _refused(settings: Settings, data: Data | None) -> str:
    """What a run of FedAvg would say to these settings, if its data are here."""
    try:
        if data:
            prepare(replace(settings, algorithm=FedAvg()), data, say=lambda text: None)
    except UserError as error:
        return str(error)
    return ""


def _sizes(condition: Condition, rounds: int, images: int | None) -> tuple[tuple[tuple[float, str], ...], float]:
    """Rounds and images a client that are twice or half the user's, or farther from them; and the rounds' halvings."""
    trained = ROUNDS[condition.scale]
    pairs = (trained, "rounds", rounds), (condition.images, "images a client", images)
    sizes = tuple(
        (own / measured, f"its {measured} {of} (yours {own})")
        for measured, of, own in pairs
        if measured and own and abs(log2(own / measured)) >= 1
    )
    return sizes, abs(log2(rounds / trained))


def command(words: Sequence[str], names: Sequence[str]) -> str:
    """What a user runs to know it for sure: FedAvg and what did well nearby, or anywhere if nothing is near."""
    mine = [word for word in words if not re.match(r"(algorithm\b.*|seed|out)=", word)]
    seeds = f"seed={SEEDS[0]}..{SEEDS[-1]}"
    return shlex.join(["rebafl", "sweep", *mine, f"algorithm={','.join(names)}", seeds, "out=runs/which"])
