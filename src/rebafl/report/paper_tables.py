"""How do our numbers compare with the paper's? A table for each condition of an item, ours beside its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from statistics import fmean, stdev

from ..paper.item_results import ItemResults, Row
from ..paper.items import PAPER
from ..paper.results import WORST_RECALL, Result
from .markdown import TextTable

THEIRS = "paper, at its scale"  # the title of its column beside results of a smaller one
ACCURACY_COLUMNS = (
    "method", "second half", "best", "paper", "second half − paper", "best − paper", "last 10", "swing", "worst class",
    "Λ", "seeds",
)  # fmt: skip


def tables(shown: ItemResults, always_printed: bool = False) -> list[tuple[str, TextTable]]:
    """One for each condition that has results: ours beside the paper's; and one on more seeds, where some have more.

    What the paper prints is at its own scale; `always_printed` shows it beside smaller ones, too, and says so.
    """
    table: Callable[[Sequence[Row]], TextTable] = (
        _cost_table if "cost" in shown.item.shows else lambda rows: _accuracy_table(shown, rows, always_printed)
    )
    made = []
    for condition in shown.conditions:
        made.append((condition, table(shown.rows(condition))))
        if more := shown.more_seeds(condition):
            made.append((f"{condition}, the methods with more seeds", table(more)))
    return made


def _accuracy_table(shown: ItemResults, rows: Sequence[Row], always_printed: bool) -> TextTable:
    whole, known = shown.scale.name == PAPER, any(row.theirs is not None for row in rows)
    columns = {
        "second half": whole,  # at smaller scales it is the last ten rounds
        "paper": known and (whole or always_printed),
        "second half − paper": known and whole,
        "best − paper": known and whole,
        "worst class": any(_have_worst_class(row) for row in rows),
        "Λ": "diversity" in shown.item.shows,
    }
    keep = [columns.get(name, True) for name in ACCURACY_COLUMNS]
    named = [THEIRS if name == "paper" and not whole else name for name in ACCURACY_COLUMNS]
    return tuple(compress(named, keep)), [tuple(compress(_accuracy_row(shown, row), keep)) for row in rows]


def _accuracy_row(shown: ItemResults, row: Row) -> Sequence[str]:
    gaps = [f"{row.mean(name) - row.theirs:+.2f}" if row.theirs is not None else "" for name in ("second_half", "best")]
    return (
        row.name,
        _over_seeds(row.results, "second_half"),
        _over_seeds(row.results, "best"),
        "" if row.theirs is None else f"{row.theirs:.2f}",
        *gaps,
        _over_seeds(row.results, "last10"),
        f"{row.mean('swing'):.2f}",
        _over_seeds(row.results, WORST_RECALL) if _have_worst_class(row) else "",
        f"{row.mean('diversity'):.3g}" if "diversity" in shown.item.shows else "",
        _seeds(row.results),
    )


def _have_worst_class(row: Row) -> bool:
    """Do all its results? Older ones lack it, and a mean of the others would be of fewer seeds than its row says."""
    return all(WORST_RECALL in result.curves for result in row.results)


def _cost_table(rows: Sequence[Row]) -> TextTable:
    costs = [(row.name, *(f"{row.mean(name):,.0f}" for name in ("bytes_down", "bytes_up"))) for row in rows]
    seeds = [_seeds(row.results) for row in rows]
    header = ("method", "bytes to a client", "bytes of its upload", "seeds")
    return header, [(*cost, of) for cost, of in zip(costs, seeds, strict=True)]


def _seeds(results: Sequence[Result]) -> str:
    return ", ".join(str(result.seed) for result in results)


def _over_seeds(results: Sequence[Result], name: str) -> str:
    values = [result.measure(name) for result in results]
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
