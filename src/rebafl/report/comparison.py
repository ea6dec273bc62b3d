"""Which is better, by how much, and at what price? Groups of runs in a table, and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from ..base.errors import UserError
from ..runs import measures
from ..runs.paired import CONFIDENCE, Paired, paired
from .summary import Group, Reached

NOTE = (
    "Percent, of the global model on the whole test set. Best is chosen on the test set, so it is too good. "
    "Swing: the mean change from round to round over the second half. "
    "Loss and worst class (the lowest recall): of the last round."
)
MANY_SEEDS = "± is the std over seeds; spread is the std over a run's last ten rounds, averaged over seeds."
NOT_USED = {
    "refused": "Refused: uploads that were not used.",
    "no answer": "No answer: clients that were asked and did not answer.",
    "no update": "No update: rounds that left the model unchanged.",
    "discarded": "Discarded: rounds of these whose new model could not be right.",
}
OWN = "Clients: accuracy on test samples like a client's own, over all clients, when it was measured last."
TUNED = "Tuned: the same after local fine-tuning."
FOR_CLIENTS = {
    "mean": ("clients'\nmean", OWN),
    "worst_tenth": ("clients'\nworst 10%", OWN),
    "spread": ("clients'\nspread", OWN),
    "tuned_mean": ("tuned\nmean", TUNED),
    "tuned_worst_tenth": ("tuned\nworst 10%", TUNED),
    "tuned_spread": ("tuned\nspread", TUNED),
}
Measure = Literal["best", "last", "last10", "second_half", "swing"]


@dataclass(frozen=True)
class Column:
    """One column: its title, what stands in it, and a sentence that explains it."""

    title: str
    cell: Callable[[Group], str]
    note: str = ""


def comparison_table(groups: Sequence[Group]) -> Table:
    """One row per group; the best is bold."""
    return _table(groups, _columns(groups), NOTE)


def further_tables(groups: Sequence[Group], to: float | None, by: Measure, against: str = "") -> list[Table]:
    """What there is besides: how good it is for clients, what it took to reach `to` percent, paired differences."""
    found = [_table(groups, columns) for columns in (_for_clients(groups), _price(to)) if columns]
    pairs = paired_table(groups, by, against)
    return [*found, *([pairs] if pairs else [])]


def _table(groups: Sequence[Group], columns: Sequence[Column], *notes: str) -> Table:
    said = [*notes, *(column.note for column in columns if column.note)]
    said += [f"WARNING, {escape(group.label)}: {group.tally.warning}" for group in groups if group.tally.warning]
    table = Table(box=box.SIMPLE_HEAD, caption=" ".join(dict.fromkeys(said)), caption_justify="left")
    table.add_column("run", min_width=14, max_width=50, overflow="fold")
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    highest = max(groups, key=lambda group: group.over_seeds("last10_mean")[0])
    for group in groups:
        bold = "bold" if len(groups) > 1 and group is highest else ""
        style = f"{bold} {'red' if group.tally.warning else ''}".strip()
        table.add_row(escape(group.label), *(column.cell(group) for column in columns), style=style)
    return table


def _columns(groups: Sequence[Group]) -> list[Column]:
    seeds = any(len(group.runs) > 1 for group in groups)
    tail = measures.tail_name(*(len(run.scored) for group in groups for run in group.runs))
    columns = [Column("rounds", lambda group: str(max(len(run.rounds) for run in group.runs)))]
    columns += [Column("best", _mean("best")), Column("last", _mean("last"))]
    if seeds:
        columns.insert(0, Column("seeds", lambda group: str(len(group.runs))))
        columns += [Column(tail, _mean("last10_mean")), Column("spread", _mean("last10_std", std=False), MANY_SEEDS)]
    else:
        text = f"{tail.capitalize()}: mean ± std over rounds at a run's end."
        columns += [Column(tail, _within, text)]
    columns += [Column("second\nhalf", _mean("second_half")), Column("swing", _mean("swing", std=False))]
    columns += [Column("loss", _mean("loss", ".3f", std=False))]
    columns += [Column("worst\nclass", _mean("worst_class_recall", std=False))]
    troubles = [title for title in NOT_USED if any(title in group.tally.words() for group in groups)]
    return columns + [Column(title, _trouble(title), NOT_USED[title]) for title in troubles]


def _mean(name: str, form: str = ".2f", std: bool = True) -> Callable[[Group], str]:
    def cell(group: Group) -> str:
        mean, spread = group.over_seeds(name)
        text = "–" if math.isnan(mean) else f"{mean:{form}}"
        return f"{text} ± {spread:{form}}" if std and not math.isnan(spread) else text

    return cell


def _within(group: Group) -> str:
    """Of one run: the mean and the std over its last rounds."""
    mean, std = (group.over_seeds(name)[0] for name in ("last10_mean", "last10_std"))
    return f"{mean:.2f} ± {std:.2f}"


def _trouble(title: str) -> Callable[[Group], str]:
    return lambda group: group.tally.words().get(title, "")


def _for_clients(groups: Sequence[Group]) -> list[Column]:
    """How good the model is for each client, if any run measured it."""
    known = {name for group in groups for run in group.runs for name in run.over_clients}
    return [
        Column(title, _mean(f"clients_{name}"), note) for name, (title, note) in FOR_CLIENTS.items() if name in known
    ]


def _price(to: float | None) -> list[Column]:
    if to is None:
        return []
    note = (
        f"To {to:g} %: until a round of the test set has at least that for the first time, the mean of the seeds that "
        "get there; MB up and down, of all clients."
    )
    parts: dict[str, Callable[[Reached], float]] = {
        "rounds": lambda reached: reached.rounds,
        "MB": lambda reached: reached.bytes / 1e6,
        "seconds": lambda reached: reached.seconds,
    }
    return [Column(f"{name} to\n{to:g} %", _reached(to, part), note) for name, part in parts.items()]


def _reached(to: float, part: Callable[[Reached], float]) -> Callable[[Group], str]:
    def cell(group: Group) -> str:
        found = [reached for run in group.runs if (reached := run.reached(to))]
        if not found:
            return "never"
        some = f" ({len(found)} of {len(group.runs)})" if len(found) < len(group.runs) else ""
        return f"{fmean(part(reached) for reached in found):.1f}{some}"

    return cell


def differences(groups: Sequence[Group], measure: Measure, against: str = "") -> dict[str, Paired]:
    """By label, how much better a group is than the first, or than the one whose label is given."""
    base = _base(groups, against)
    ours = {group.label: {run.seed: run.measure(measure) for run in group.runs} for group in groups}
    pairs = {label: paired(values, ours[base.label]) for label, values in ours.items() if label != base.label}
    return {label: pair for label, pair in pairs.items() if pair}


def _base(groups: Sequence[Group], against: str) -> Group:
    if not against:
        return groups[0]
    found = [group for group in groups if group.label == against]
    found = found or [group for group in groups if against in group.label.split(", ")]
    if len(found) != 1:
        names = "; ".join(group.label for group in groups)
        raise UserError(f"--against {against!r} names {'none' if not found else 'more than one'} of these: {names}.")
    return found[0]


def paired_table(groups: Sequence[Group], measure: Measure, against: str = "") -> Table | None:
    """Their differences; None where no two groups have two seeds in common."""
    found = differences(groups, measure, against)
    if not found:
        return None
    base = escape(_base(groups, against).label)
    note = (
        "Means over the seeds that both have, in points; p by Student's paired t test, two-sided, not corrected for "
        "the number of comparisons."
    )
    tail = measures.tail_name(*(len(run.scored) for group in groups for run in group.runs))
    title = f"{tail if measure == 'last10' else measure.replace('_', ' ')}: difference to {base}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", caption=note, caption_justify="left")
    table.add_column("run", min_width=14, max_width=50, overflow="fold")
    for name in ("seeds", "difference", f"{CONFIDENCE:.0%} interval", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, pair in found.items():
        interval = f"{pair.low:+.2f} to {pair.high:+.2f}"
        p = f"{pair.p:.3f}" if pair.p >= 0.001 else "< 0.001"
        table.add_row(escape(label), str(pair.seeds), f"{pair.difference:+.2f}", interval, p)
    return table


def comparison_json(
    groups: Sequence[Group], to: float | None = None, measure: Measure = "last10", against: str = ""
) -> list[dict[str, Any]]:
    """The same for scripts."""
    pairs = differences(groups, measure, against)
    return [
        {
            "label": group.label,
            "runs": [
                {
                    "path": str(run.path),
                    "seed": run.config.get("seed"),
                    **run.summary(),
                    **({"to": _plain_reached(run.reached(to), to)} if to is not None else {}),
                }
                for run in group.runs
            ],
            **({"paired": {"of": measure, **asdict(pairs[group.label])}} if group.label in pairs else {}),
        }
        for group in groups
    ]


def _plain_reached(reached: Reached | None, to: float) -> dict[str, Any]:
    return {"percent": to, **(asdict(reached) if reached else {"rounds": None, "bytes": None, "seconds": None})}
