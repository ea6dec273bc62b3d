"""The paper's figures with our curves: one look for each method everywhere, told apart in grey too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..paper.items import printed
from ..paper.results import Result
from .figures import COLOURS, METHOD_COLOURS, save
from .reproduction import Shown

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^vP*Xhd<"  # eleven, lines are five: no two of the methods share both
ORDER = (
    "ReBaFL", "FedAvg", "BSM-FedAvg", "FedDyn", "FedRS", "FedProx", "Scaffold", "MOON", "FedBABU", "FedLC",
    "FedAvg-FT", "R-BSM", "F-Aug", "label smoothing", "FedAvg, all there",
)  # fmt: skip
FIRST = {
    "ReBaFL": METHOD_COLOURS["rebafl"],
    "FedAvg": METHOD_COLOURS["fedavg"],
    "BSM-FedAvg": METHOD_COLOURS["bsm-fedavg"],
}


def look(method: str, place: int) -> dict[str, Any]:
    """Colour, line and marker: by name for known methods, else by place."""
    place = ORDER.index(method) if method in ORDER else place
    spare = [colour for colour in COLOURS if colour not in FIRST.values()]
    colour = FIRST.get(method, spare[place % len(spare)])
    return {"color": colour, "linestyle": LINES[place % len(LINES)], "marker": MARKERS[place % len(MARKERS)]}


def draw(shown: Shown, path: Path) -> bool:
    """Draw an item as PNG and PDF at `path` with those endings; False if there is nothing to draw."""
    painters = {"curves": _curves, "diversity": _curves, "bars": _bars, "table": _dots, "lines": _lines}
    paint = painters.get(shown.item.shows)
    if paint is None or not shown.results:
        return False
    figure = paint(shown)
    for ending in (".png", ".pdf"):
        save(figure, path.with_name(path.name + ending))
    return True


def _panels(shown: Shown, height: float = 2.9) -> tuple[Figure, dict[str, Axes]]:
    """A panel for each condition that has results."""
    there = [c for c in shown.item.conditions if any(shown.lookup(m, c) for m in shown.item.methods)]
    columns = min(2 if len(there) in (2, 4) else 3, len(there))
    rows = ceil(len(there) / columns)
    figure = Figure(figsize=(max(4.2 * columns, 5.5), height * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for spare in list(grid.flat)[len(there) :]:
        spare.set_visible(False)
    for axes, condition in zip(grid.flat, there, strict=False):
        axes.set_title(condition, loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, dict(zip(there, grid.flat, strict=False))


def _legend(figure: Figure, panels: Mapping[str, Axes]) -> None:
    known: dict[str, Any] = {}
    for axes in panels.values():
        handles, labels = axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(known.values()), list(known), loc="outside lower center", ncols=min(5, len(known)), frameon=False
    )


def _curves(shown: Shown) -> Figure:
    """Accuracy, or weight diversity, over rounds; a band of one std where there are several seeds."""
    name = "diversity" if shown.item.shows == "diversity" else "accuracy"
    figure, panels = _panels(shown)
    for condition, axes in panels.items():
        for place, method in enumerate(shown.item.methods):
            results = list(shown.lookup(method, condition).values())
            if results:
                _curve(axes, results, name, method, place)
        axes.set_xlabel("communication round")
        axes.set_ylabel("weight diversity Λ" if name == "diversity" else "test accuracy (%)")
        if name == "diversity":
            axes.set_yscale("log")
    _legend(figure, panels)
    return figure


def _curve(axes: Axes, results: list[Result], name: str, method: str, place: int) -> None:
    length = min(result.rounds for result in results)
    values = np.array([[np.nan if v is None else v for v in result.curves[name][:length]] for result in results])
    x, mean = np.arange(1, length + 1), values.mean(0)
    style = look(method, place)
    every = max(1, length // 6)
    axes.plot(x, mean, label=method, linewidth=1.4, markersize=4, markevery=(place % every, every), **style)
    if len(results) > 1:
        spread = values.std(0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)


def _means(shown: Shown, condition: str, measure: str) -> dict[str, float]:
    return {
        method: float(np.mean([result.measure(measure) for result in results.values()]))
        for method in shown.item.methods
        if (results := shown.lookup(method, condition))
    }


def _bars(shown: Shown) -> Figure:
    """A bar a method: the best round, and a line where the last ten rounds are on average."""
    figure, panels = _panels(shown)
    hatches = cycle(("", "//", "\\\\", "xx", "..", "--", "++", "oo", "**"))
    hatch = {method: next(hatches) for method in shown.item.methods}
    for condition, axes in panels.items():
        best, tail = _means(shown, condition, "best"), _means(shown, condition, "last10")
        for place, method in enumerate(best):
            colour = look(method, place)["color"]
            axes.bar(
                place, best[method], color=colour, alpha=0.75, hatch=hatch[method], edgecolor="black", linewidth=0.5
            )
            axes.plot([place - 0.4, place + 0.4], [tail[method]] * 2, color="black", linewidth=2)
        axes.set_xticks(range(len(best)), list(best), rotation=40, ha="right", fontsize=8)
        axes.set_ylabel("test accuracy (%)\nbar: best; line: last ten")
        axes.set_ylim(bottom=max(0, min(tail.values()) - 15))
    return figure


def _dots(shown: Shown) -> Figure:
    """For each method our best round, our last ten, and what the paper prints."""
    figure, panels = _panels(shown, height=3.2)
    for condition, axes in panels.items():
        best, tail = _means(shown, condition, "best"), _means(shown, condition, "last10")
        rows = list(best)
        axes.scatter(
            list(best.values()), range(len(rows)), color=METHOD_COLOURS["rebafl"], label="best, ours", zorder=3
        )
        axes.scatter(
            list(tail.values()),
            range(len(rows)),
            marker="|",
            s=120,
            color="black",
            label="mean of last ten, ours",
            zorder=3,
        )
        theirs = [(printed(shown.item, condition, method), place) for place, method in enumerate(rows)]
        there = [(value, place) for value, place in theirs if value is not None]
        if there and shown.scale.name == "paper":
            x, y = zip(*there, strict=True)
            ring = METHOD_COLOURS["fedavg"]
            axes.scatter(x, y, s=70, facecolors="none", edgecolors=ring, label="best, paper")
        axes.set_yticks(range(len(rows)), rows, fontsize=9)
        axes.invert_yaxis()
        axes.set_xlabel("test accuracy (%)")
    _legend(figure, panels)
    return figure


def _lines(shown: Shown) -> Figure:
    """The best accuracy of each method against the conditions."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    conditions = list(shown.item.conditions)
    for place, method in enumerate(shown.item.methods):
        found = [(x, _means(shown, c, "best")[method]) for x, c in enumerate(conditions) if shown.lookup(method, c)]
        if found:
            axes.plot(*zip(*found, strict=True), label=method, **look(method, place))
    axes.set_xticks(range(len(conditions)), conditions)
    axes.set_ylabel("best test accuracy (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
