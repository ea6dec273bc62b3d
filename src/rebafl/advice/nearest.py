"""What was measured near a user's setting, and what does it say? The nearest condition of each data set and scale.

It has the fewest steps (`apart`), and is near if these are at most two. The paper's scale comes first; of a smaller one
the nearest condition is added only if it is nearer, or if its best method was not run at the larger ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..algorithms.fedavg import FedAvg
from ..base.config import KIND, plain
from ..base.errors import UserError
from ..data import is_here
from ..runs.experiment import prepare
from ..runs.settings import Settings
from .limits import competing, ruled_out
from .measured import ROUNDS, Condition, Measured, algorithm_of, name_of
from .setting import Setting, apart, setting_of
from .verdict import Verdict, judge, judge_stateless

NEAR = 2.0  # steps
SEEDS = "0..2"


@dataclass(frozen=True)
class Near:
    """A condition that was measured, how far it is, and its verdict on the methods that a user can take."""

    condition: Condition
    differences: tuple[tuple[float, str], ...]
    verdict: Verdict
    stateless: Verdict | None

    @property
    def steps(self) -> float:
        return sum(steps for steps, _ in self.differences)

    @property
    def is_near(self) -> bool:
        return self.steps <= NEAR

    @property
    def words(self) -> str:
        """How near it is."""
        if not self.differences:
            return "like yours"
        differences = "; ".join(words for _, words in self.differences)
        return f"{'near yours' if self.is_near else 'not near yours'} ({self.steps:.1f} steps): {differences}"


@dataclass(frozen=True)
class Advice:
    """All that is to be said to a user; `found` holds one condition that is not near, if none is.

    `again` measures it in the user's own setting; `refused` is why that cannot be run as it is, or ''.
    """

    setting: Setting
    found: tuple[Near, ...]
    excluded: dict[str, str]
    again: str
    refused: str

    @property
    def is_near(self) -> bool:
        return any(near.is_near for near in self.found)

    @property
    def take(self) -> str:
        """In one line; where conditions near it disagree, the first that is said of has the largest scale."""
        if not self.is_near:
            return "Nothing near it was measured. The nearest, which says little about yours:"
        level = [[entry.name for entry in near.verdict.level] for near in self.found]
        common = [name for name in level[0] if all(name in names for names in level)]
        if not common:
            others = dict.fromkeys(" or ".join(names) for names in level[1:])
            return f"Take {' or '.join(level[0])}; but {' and '.join(others)} elsewhere near yours: measure it."
        where = "the condition" if len(level) == 1 else f"each of {len(level)} conditions"
        sure = dict.fromkeys(near.verdict.leads[0].sure for near in self.found)
        return f"Take {' or '.join(common)}: ahead in {where} near yours ({'; '.join(sure)})."


def advise(settings: Settings, words: Sequence[str], measured: Measured, no_state: bool = False) -> Advice:
    """`words` are the user's own, for the command that measures it."""
    mine = setting_of(settings, observe=True)
    names = {entry.name: entry.algorithm for condition in measured.conditions for entry in competing(condition)}
    reasons = {name: ruled_out(algorithm, settings, no_state) for name, algorithm in sorted(names.items())}
    excluded = {name: reason for name, reason in reasons.items() if reason}
    if names and len(excluded) == len(names):
        raise UserError(f"No method that was measured can be run so: {next(iter(excluded.values())).rstrip('.')}.")
    judged = [near for condition in measured.conditions if (near := _near(mine, condition, excluded))]
    known = sorted({near.condition.setting.dataset for near in judged})
    datasets = [mine.dataset] if mine.dataset in known else known
    found = [near for dataset in datasets for near in _said(judged, dataset)]
    near_ones = [near for near in found if near.is_near]
    found = near_ones or sorted(found, key=lambda near: near.steps)[:1]
    good = {entry.name for near in near_ones for entry in (*near.verdict.level, near.verdict.leads[0].over)}
    good = good or {near.verdict.best.name for near in judged}
    own = settings.plain()["algorithm"]  # a settings file may have set what the sweep must set back
    named = [
        name_of({KIND: name.partition("[")[0], **plain(algorithm_of(name))}, own)
        for name in sorted({"fedavg", *good} - excluded.keys())
    ]
    return Advice(mine, tuple(found), excluded, command(words, named), _refused(settings))


def _refused(settings: Settings) -> str:
    """What a run of FedAvg would say to these settings, if its data are here."""
    try:
        if is_here(settings.dataset):
            prepare(replace(settings, algorithm=FedAvg()), say=lambda text: None)
    except UserError as error:
        return str(error)
    return ""


def _near(mine: Setting, condition: Condition, excluded: dict[str, str]) -> Near | None:
    entries = [entry for entry in competing(condition) if entry.name not in excluded]
    differences, verdict = tuple(apart(mine, condition.setting)), judge(entries)
    return Near(condition, differences, verdict, judge_stateless(entries)) if verdict else None


def _said(judged: Sequence[Near], dataset: str) -> list[Near]:
    """What is said of a data set, the largest scale first."""
    said: list[Near] = []
    for scale in ROUNDS:
        here = [n for n in judged if (n.condition.scale, n.condition.setting.dataset) == (scale, dataset)]
        nearest = min(here, key=lambda near: near.steps, default=None)
        if nearest and (not said or _adds(nearest, said)):
            said.append(nearest)
    return said


def _adds(smaller: Near, larger: Sequence[Near]) -> bool:
    run = {entry.kind for near in larger for entry in near.condition.entries}
    return smaller.steps < min(near.steps for near in larger) or smaller.verdict.best.kind not in run


def command(words: Sequence[str], names: Sequence[str]) -> str:
    """What a user runs to know it for sure: FedAvg and what did well nearby, or anywhere if nothing is near."""
    mine = [word for word in words if not re.match(r"(algorithm\b.*|seed|out)=", word)]
    return shlex.join(["rebafl", "sweep", *mine, f"algorithm={','.join(names)}", f"seed={SEEDS}", "out=runs/which"])
