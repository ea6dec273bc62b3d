"""How do our numbers compare with the paper's? A table for each condition of an item, ours beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from statistics import fmean, stdev

from ..paper.item_results import ItemResults
from ..paper.items import PAPER, printed
from ..paper.results import Result
from .markdown import TextTable

THEIRS = "paper, at its scale"  # the title of its column beside results of a smaller one


def tables(shown: ItemResults, always_printed: bool = False) -> list[tuple[str, TextTable]]:
    """One for each condition that has results: ours beside the paper's.

    What the paper prints is at its own scale; `always_printed` shows it beside smaller ones, too, and says so.
    """
    conditions = [name for name in shown.item.conditions if any(name == condition for _, condition in shown.results)]
    if "cost" in shown.item.shows:
        return [(condition, _cost_table(shown, condition)) for condition in conditions]
    return [(condition, _accuracy_table(shown, condition, always_printed)) for condition in conditions]


def _accuracy_table(shown: ItemResults, condition: str, always_printed: bool) -> TextTable:
    whole = shown.scale.name == PAPER
    known = any(printed(shown.item, condition, method) is not None for method in shown.item.methods)
    columns = {
        "paper": known and (whole or always_printed),
        "difference": known and whole,
        "second half": whole,  # at smaller scales it is the last ten rounds
        "Λ": "diversity" in shown.item.shows,
    }
    header = ("method", "best", "paper", "difference", "second half", "last 10", "swing", "Λ", "seeds")
    keep = [columns.get(name, True) for name in header]
    methods = [method for method in shown.item.methods if shown.lookup(method, condition)]
    rows = [_accuracy_row(shown, method, condition) for method in methods]
    named = [THEIRS if name == "paper" and not whole else name for name in header]
    return tuple(compress(named, keep)), [tuple(compress(row, keep)) for row in rows]


def _accuracy_row(shown: ItemResults, method: str, condition: str) -> Sequence[str]:
    results = list(shown.on_common_seeds(method, condition).values())
    theirs = printed(shown.item, condition, method)
    ours = fmean(result.measure("best") for result in results)
    return (
        method,
        _over_seeds(results, "best"),
        *(("", "") if theirs is None else (f"{theirs:.2f}", f"{ours - theirs:+.2f}")),
        _over_seeds(results, "second_half"),
        _over_seeds(results, "last10"),
        f"{fmean(result.measure('swing') for result in results):.2f}",
        f"{fmean(r.measure('diversity') for r in results):.3g}" if "diversity" in shown.item.shows else "",
        _seeds(results),
    )


def _cost_table(shown: ItemResults, condition: str) -> TextTable:
    rows: list[Sequence[str]] = []
    for method in shown.item.methods:
        if results := list(shown.on_common_seeds(method, condition).values()):
            values = [fmean(result.measure(name) for result in results) for name in ("bytes_down", "bytes_up")]
            rows.append((method, *(f"{value:,.0f}" for value in values), _seeds(results)))
    return ("method", "bytes to a client", "bytes of its upload", "seeds"), rows


def _seeds(results: Sequence[Result]) -> str:
    return ", ".join(str(result.seed) for result in results)


def _over_seeds(results: Sequence[Result], name: str) -> str:
    values = [result.measure(name) for result in results]
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
