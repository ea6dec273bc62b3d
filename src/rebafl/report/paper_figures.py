"""What do the paper's figures look like with our results? Each method looks the same everywhere, also in grey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import ceil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..paper.item_results import ItemResults, Row
from ..paper.items import PAPER
from ..paper.two_models import REFERENCE, TwoModels
from .figures import COLOURS, METHOD_COLOURS, save

ENDINGS = (".png", ".pdf")
PAINTED = ("curves", "diversity", "bars", "table", "lines")  # ways to show an item that are pictures
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^vP*Xhd<>px+12"  # one for each of the methods below
ORDER = (
    "ReBaFL", "FedAvg", "BSM-FedAvg", "FedDyn", "FedRS", "FedProx", "Scaffold", "MOON", "FedBABU", "FedLC",
    "FedAvg, all there", "FedAvg-FT", "label smoothing", "F-Aug", "R-BSM", "FedTrack", "ReBaFL, μ = 0.5",
)  # fmt: skip
FIRST = {
    "ReBaFL": METHOD_COLOURS["rebafl"],
    "FedAvg": METHOD_COLOURS["fedavg"],
    "BSM-FedAvg": METHOD_COLOURS["bsm-fedavg"],
    "FedTrack": "#6A3D9A",  # this project's own, in a colour that no method of the paper has
}
SMOOTH = 10  # rounds that a bold line is the mean of
THIN = {"linewidth": 0.8, "markersize": 3}
MORE_SEEDS: dict[str, Any] = {
    "fmt": ".", "color": "black", "capsize": 2, "linewidth": 1, "label": "second half on more seeds, ± std"
}  # fmt: skip


def look(method: str, place: int) -> dict[str, Any]:
    """Colour, line and marker: by name for known methods, else by place."""
    place = ORDER.index(method) if method in ORDER else place
    spare = [colour for colour in COLOURS if colour not in FIRST.values()]
    colour = FIRST.get(method, spare[place % len(spare)])
    line = place * (1 + place // len(LINES))  # where colours begin anew, lines come in another order
    return {"color": colour, "linestyle": LINES[line % len(LINES)], "marker": MARKERS[place % len(MARKERS)]}


def names_of_figures(shown: ItemResults) -> list[str]:
    """What `draw` draws of an item, without the ending: a picture for each way it is shown, if there are results."""
    kinds = [kind for kind in shown.item.shows if kind in PAINTED] if shown.results else []
    name = f"{shown.item.name}-{shown.scale.name}"
    return [name if kind == shown.item.shows[0] else f"{name}-{kind}" for kind in kinds]


def draw(shown: ItemResults, folder: Path) -> list[Path]:
    """Draw an item as PNG and PDF in a folder; which, without the ending."""
    painters: dict[str, Callable[[ItemResults], Figure]] = {
        "curves": _curves,
        "diversity": partial(_curves, name="diversity"),
        "bars": _bars,
        "table": _dots,
        "lines": _lines,
    }
    kinds = [kind for kind in shown.item.shows if kind in PAINTED]
    paths = [folder / name for name in names_of_figures(shown)]
    for kind, path in zip(kinds, paths, strict=False):
        _save(painters[kind](shown), path)
    return paths


def draw_two_models(found: Sequence[TwoModels], path: Path) -> list[Path]:
    """FedDyn's clients' mean and cloud model over rounds, and a reference, a panel for each run: single rounds, which
    jump, are faint, and means of ten rounds are drawn over them."""
    figure, grid = _grid(len(found))
    for axes, each in zip(grid, found, strict=True):
        _frame(axes, each.place)
        lines = {
            REFERENCE: (each.reference, FIRST[REFERENCE], "-"),
            f"{each.method}, clients' mean": (each.clients, "#E69F00", "-"),
            f"{each.method}, cloud model": (each.cloud, "#000000", "--"),
        }
        for name, (results, colour, style) in lines.items():
            if results:
                mean = np.mean([result.curves["accuracy"] for result in results], axis=0)
                axes.plot(np.arange(1, len(mean) + 1), mean, color=colour, alpha=0.25, linewidth=0.6)
                smooth = np.convolve(mean, np.full(SMOOTH, 1 / SMOOTH), "valid")
                axes.plot(np.arange(SMOOTH, len(mean) + 1), smooth, style, color=colour, linewidth=1.8, label=name)
        label_rounds(axes, "test accuracy (%)")
    _legend(figure, grid)
    _save(figure, path)
    return [path]


def _save(figure: Figure, path: Path) -> None:
    for ending in ENDINGS:
        save(figure, path.with_name(path.name + ending))


@dataclass(frozen=True)
class Panel:
    """One pair of axes: some methods under one condition."""

    axes: Axes
    condition: str
    methods: Sequence[str]


def _panels(shown: ItemResults, height: float = 2.9) -> tuple[Figure, list[Panel]]:
    """A panel for each condition, and group of methods, that has results to compare (or any, if none has several)."""
    groups = shown.item.panels or {"": shown.item.shown_methods}
    counted = [
        (condition, name, methods, sum(bool(shown.lookup(method, condition)) for method in methods))
        for condition in shown.item.conditions
        for name, methods in groups.items()
    ]
    least = min(2, max(count for *_, count in counted))
    drawn = [(condition, name, methods) for condition, name, methods, count in counted if count >= least]
    figure, grid = _grid(len(drawn), height)
    for axes, (condition, name, _) in zip(grid, drawn, strict=True):
        _frame(axes, f"{condition}: {name}" if name else condition)
    return figure, [Panel(axes, condition, methods) for axes, (condition, _, methods) in zip(grid, drawn, strict=True)]


def _grid(count: int, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """So many pairs of axes, in up to three columns."""
    columns = min(2 if count in (2, 4) else 3, count)
    rows = ceil(count / columns)
    figure = Figure(figsize=(max(4.2 * columns, 5.5), height * rows + 0.8), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, grid: Sequence[Axes]) -> None:
    known: dict[str, Any] = {}
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    inches = 0.8 + 0.075 * max(map(len, known), default=0)  # that the longest name takes
    columns = max(1, min(5, int(figure.get_figwidth() // inches)))
    figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=columns, frameon=False)


def _curves(shown: ItemResults, name: str = "accuracy") -> Figure:
    """Accuracy, or weight diversity, over rounds; a band of one std where there are several seeds."""
    figure, panels = _panels(shown)
    for panel in panels:
        rows = {row.method: row for row in reversed(shown.rows(panel.condition))}  # the first of a method: as it counts
        for place, method in enumerate(method for method in panel.methods if method in rows):
            style = look(method, panel.methods.index(method))
            draw_curve(
                panel.axes, [result.curves[name] for result in rows[method].results], rows[method].name, style, place
            )
        label_rounds(panel.axes, "weight diversity Λ" if name == "diversity" else "test accuracy (%)")
        if name == "diversity":
            panel.axes.set_yscale("log")
    _legend(figure, [panel.axes for panel in panels])
    return figure


def draw_curve(
    axes: Axes, curves: Sequence[Sequence[float | None]], name: str, style: dict[str, Any], place: int
) -> None:
    """The mean of some runs' curves, and a band of one std where there are several; markers set off by the place."""
    length = min(map(len, curves))
    values = np.array([[np.nan if value is None else value for value in curve[:length]] for curve in curves])
    x, mean, step = np.arange(1, length + 1), values.mean(0), max(1, length // 6)
    axes.plot(x, mean, label=name, linewidth=1.4, markersize=4, markevery=(place % step, step), **style)
    if len(curves) > 1:
        spread = values.std(0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)


def label_rounds(axes: Axes, quantity: str) -> None:
    axes.set_xlabel("communication round")
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=(1, 2, 5, 10)))
    axes.set_ylabel(quantity)


def _spread(row: Row) -> tuple[float, float]:
    """The mean over the second half, over seeds, and its std; that of one seed is shown as nothing."""
    values = [result.measure("second_half") for result in row.results]
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def _theirs(shown: ItemResults, rows: Sequence[Row]) -> list[tuple[int, float]]:
    """The paper's numbers, by place; beside anything smaller than its own scale they would say nothing."""
    values = [(place, row.theirs) for place, row in enumerate(rows)]
    return [(place, value) for place, value in values if value is not None] if shown.scale.name == PAPER else []


def _over_more_seeds(shown: ItemResults, condition: str, rows: Sequence[Row]) -> list[tuple[int, float, float]]:
    """Place, mean and std of those rows whose methods have more seeds than are shown."""
    places = {row.name: place for place, row in enumerate(rows)}
    return [(places[row.name], *_spread(row)) for row in shown.more_seeds(condition) if row.name in places]


def _bars(shown: ItemResults) -> Figure:
    """One bar per method: the mean over the second half, and a line at the best round."""
    figure, panels = _panels(shown)
    hatches = cycle(("", "//", "\\\\", "xx", "..", "--", "++", "oo", "**"))
    hatch = {method: next(hatches) for method in shown.item.shown_methods}
    for panel in panels:
        axes, rows = panel.axes, shown.rows(panel.condition)
        for place, row in enumerate(rows):
            mean, std = _spread(row)
            style = {"color": look(row.method, place)["color"], "hatch": hatch[row.method]}
            axes.bar(place, mean, yerr=std or None, alpha=0.75, edgecolor="black", linewidth=0.5, capsize=3, **style)
            axes.plot([place - 0.4, place + 0.4], [row.mean("best")] * 2, color="black", linewidth=2)
        for place, mean, std in _over_more_seeds(shown, panel.condition, rows):
            axes.errorbar(place + 0.2, mean, yerr=std, **MORE_SEEDS)
        if theirs := _theirs(shown, rows):
            x, y = zip(*theirs, strict=True)
            axes.scatter(x, y, s=60, facecolors="white", edgecolors="black", zorder=3, label="paper")
        axes.set_xticks(range(len(rows)), [row.name for row in rows], rotation=40, ha="right", fontsize=8)
        axes.set_ylabel("test accuracy (%)\nbar: second half; line: best")
    _legend(figure, [panel.axes for panel in panels])
    return figure


def _dots(shown: ItemResults) -> Figure:
    """For each method the mean over the second half, the best round, and what the paper prints."""
    most = max(len(shown.rows(condition)) for condition in shown.conditions)
    figure, panels = _panels(shown, height=0.9 + 0.23 * most)
    ours, ring = METHOD_COLOURS["rebafl"], METHOD_COLOURS["fedavg"]
    for panel in panels:
        axes, rows = panel.axes, shown.rows(panel.condition)
        places = range(len(rows))
        for place, row in enumerate(rows):
            mean, std = _spread(row)
            own = row.method in shown.item.ours
            colour, label = (FIRST.get(row.method, ours), "") if own else (ours, "second half, measured here")
            axes.errorbar(mean, place, xerr=std or None, fmt="D" if own else "o", color=colour, label=label)
        for place, mean, std in _over_more_seeds(shown, panel.condition, rows):
            axes.errorbar(mean, place + 0.25, xerr=std, **MORE_SEEDS)
        best = [row.mean("best") for row in rows]
        axes.scatter(best, places, marker="|", s=120, color="black", label="best round, measured here", zorder=3)
        if theirs := _theirs(shown, rows):
            y, x = zip(*theirs, strict=True)
            axes.scatter(x, y, s=70, facecolors="none", edgecolors=ring, label="paper", zorder=3)
        axes.set_yticks(places, [row.name for row in rows], fontsize=9)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # from the top down, no marker cut
        axes.set_xlabel("test accuracy (%)")
    _legend(figure, [panel.axes for panel in panels])
    return figure


def _lines(shown: ItemResults) -> Figure:
    """The mean over the second half of each method against the conditions."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    conditions = list(shown.item.conditions)
    points: dict[str, dict[int, tuple[float, float]]] = {}
    styles = {}
    for x, condition in enumerate(conditions):
        for row in shown.rows(condition):
            points.setdefault(row.name, {})[x] = _spread(row)
            own = row.name in shown.item.shown_methods  # else it is another model of the same run: the same, thinner
            styles[row.name] = look(row.method, shown.item.shown_methods.index(row.method)) | ({} if own else THIN)
    for number, (name, by_place) in enumerate(points.items()):
        means, stds = zip(*by_place.values(), strict=True)
        places = [place + 0.04 * (number - len(points) // 2) for place in by_place]  # error bars stand side by side
        axes.errorbar(places, means, yerr=stds if any(stds) else None, capsize=3, label=name, **styles[name])
    axes.set_xticks(range(len(conditions)), conditions)
    axes.set_ylabel("test accuracy (%), second half")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
