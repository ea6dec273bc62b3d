"""What do the paper's figures look like with our results? Each method looks the same everywhere, also in grey."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from ..paper.item_results import ItemResults, Row
from ..paper.items import PAPER
from ..paper.results import Result
from ..paper.two_models import FEDDYN, REFERENCE, TwoModels
from .figures import COLOURS, METHOD_COLOURS, save

ENDINGS = (".png", ".pdf")
PAINTED = ("curves", "diversity", "table", "lines")  # ways to show an item that are pictures
LINES: tuple[Any, ...] = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # as many as share no factor with the colours
MARKERS: tuple[Any, ...] = (*"osD^vP", (4, 1, 0), *"X>dphH<", (3, 1, 0), *"*8", (6, 1, 0), (8, 1, 0))  # of each method
ORDER = (
    "ReBaFL", "FedAvg", "BSM-FedAvg", "FedDyn", "FedRS", "FedProx", "Scaffold", "MOON", "FedBABU", "FedLC",
    "FedAvg, all there", "FedAvg-FT", "label smoothing", "F-Aug", "R-BSM", "FedTrack", "ReBaFL, μ = 0.5",
    "Scaffold (authors' code)", "FedDyn, α = 0.0001",
)  # fmt: skip
FIRST = {
    "ReBaFL": METHOD_COLOURS["rebafl"],
    "FedAvg": METHOD_COLOURS["fedavg"],
    "BSM-FedAvg": METHOD_COLOURS["bsm-fedavg"],
    "FedTrack": "#6A3D9A",  # this project's own, in a colour that no method of the paper has
}
SOLID = ("ReBaFL", "FedAvg", "FedDyn", "FedTrack")  # others come close to these, and are seen upon them by being broken
SMOOTH, LONG = 10, 100  # rounds that a line of a long run is the mean of, and from which on a run is long
SMOOTHED = f"thick: trailing mean of {SMOOTH} rounds; thin and pale: single rounds"
THIN = {"linestyle": "--", "linewidth": 0.8, "markersize": 3}  # another model of the same run
MORE_SEEDS: dict[str, Any] = {"fmt": ".", "color": "black", "capsize": 2, "linewidth": 1}


def look(method: str, place: int) -> dict[str, Any]:
    """Colour, line and marker: by name for known methods, else by place."""
    place = ORDER.index(method) if method in ORDER else place
    spare = [colour for colour in COLOURS if colour not in FIRST.values()]
    colour = FIRST.get(method, spare[place % len(spare)])
    line = "-" if method in SOLID else LINES[place % len(LINES)]
    return {"color": colour, "linestyle": line, "marker": MARKERS[place % len(MARKERS)]}


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
        "table": _dots,
        "lines": _lines,
    }
    kinds = [kind for kind in shown.item.shows if kind in PAINTED]
    paths = [folder / name for name in names_of_figures(shown)]
    for kind, path in zip(kinds, paths, strict=False):
        _save(painters[kind](shown), path)
    return paths


def draw_two_models(found: Sequence[TwoModels], path: Path) -> list[Path]:
    """FedDyn's clients' mean and cloud model over rounds, and a reference, a panel for each run."""
    figure, grid = _grid(len(found))
    for axes, each in zip(grid, found, strict=True):
        _frame(axes, f"{each.name} ({seeds_in_words([each.clients])})")
        lines = {
            REFERENCE: (each.reference, FIRST[REFERENCE], "-"),
            f"{FEDDYN}, clients' mean": (each.clients, "#E69F00", "-"),
            f"{FEDDYN}, cloud model": (each.cloud, "#000000", "--"),
        }
        for name, (results, colour, line) in lines.items():
            if results:
                draw_curve(axes, _curves_of(results), name, {"color": colour, "linestyle": line})
        label_rounds(axes, "test accuracy (%)")
    _legend(figure, grid, _how_drawn([results for each in found for results in (each.clients, each.reference)]))
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


def _legend(figure: Figure, grid: Sequence[Axes], how_drawn: str = "") -> None:
    """What the marks mean, below all panels, each once; `how_drawn` holds for all of them."""
    known: dict[str, Any] = {}
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    inches = 0.75 + 0.07 * max(map(len, known), default=0)  # that the longest name takes
    columns = max(1, min(5, int(figure.get_figwidth() // inches)))
    figure.set_figheight(figure.get_figheight() + 0.2 * (ceil(len(known) / columns) - 2 + bool(how_drawn)))
    figure.legend(
        list(known.values()), list(known), loc="outside lower center", ncols=columns, frameon=False, handlelength=3,
        fontsize=9, title=how_drawn or None, title_fontsize=9,
    )  # fmt: skip


def seeds_in_words(shown: Iterable[Sequence[Result]]) -> str:
    """Which seeds the results rest on, in words; how many, where not all rest on the same."""
    found = {tuple(sorted(result.seed for result in results)) for results in shown}
    if not found:
        return ""
    if len(found) > 1:
        fewest, most = min(map(len, found)), max(map(len, found))
        return f"{fewest} to {most} seeds" if fewest < most else "not the same seeds"
    (seeds,) = found
    in_a_row = len(seeds) > 2 and seeds == tuple(range(seeds[0], seeds[-1] + 1))
    named = f"{seeds[0]} to {seeds[-1]}" if in_a_row else ", ".join(map(str, seeds))
    return f"seeds {named}" if len(seeds) > 1 else f"seed {named}"


def _mean_over(shown: Sequence[Sequence[Result]]) -> str:
    """What a mark with an error bar is, in words."""
    return seeds_in_words(shown) + (": mean ± std" if any(len(results) > 1 for results in shown) else "")


def _how_drawn(shown: Iterable[Sequence[Result]]) -> str:
    """What lines and bands mean in a picture of curves."""
    results = [results for results in shown if results]
    smoothed = SMOOTHED if any(result.rounds >= LONG for of_method in results for result in of_method) else ""
    band = "band: ± std over seeds" if any(len(of_method) > 1 for of_method in results) else ""
    return "; ".join(part for part in (smoothed, band) if part)


def _curves(shown: ItemResults, name: str = "accuracy") -> Figure:
    """Accuracy, or weight diversity, over rounds, of the clients' mean and of the cloud model where there are both."""
    figure, panels = _panels(shown)
    drawn: list[Sequence[Result]] = []
    for panel in panels:
        rows = [row for row in shown.rows(panel.condition) if row.method in panel.methods]
        for place, row in enumerate(row for row in rows if name == "accuracy" or not row.by_cloud_model):
            style = look(row.method, panel.methods.index(row.method)) | (THIN if row.by_cloud_model else {})
            draw_curve(panel.axes, _curves_of(row.results, name), row.name, style, place)
            drawn.append(row.results)
        label_rounds(panel.axes, "weight diversity Λ" if name == "diversity" else "test accuracy (%)")
        if name == "diversity":
            _scale_by_factors(panel.axes)
    _legend(
        figure, [panel.axes for panel in panels], f"{seeds_in_words(drawn)}; {_how_drawn(drawn)}".removesuffix("; ")
    )
    return figure


def _curves_of(results: Sequence[Result], name: str = "accuracy") -> list[list[float | None]]:
    return [result.curves[name] for result in results]


def draw_curve(
    axes: Axes,
    curves: Sequence[Sequence[float | None]],
    name: str,
    style: dict[str, Any],
    place: int = 0,
    x: npt.NDArray[np.float64] | None = None,
) -> None:
    """The mean of some runs' curves, over rounds or `x`, and a band of one std where there are several runs.

    Single rounds of long runs jump too much for several lines in one picture: they are pale, and means over rounds are
    drawn on them. Markers are set off by the place.
    """
    length = min(map(len, curves))
    values = np.array([[np.nan if value is None else value for value in curve[:length]] for curve in curves])
    x = np.arange(1.0, length + 1) if x is None else x
    width, colour = 1.4, style["color"]
    if length >= LONG:
        axes.plot(x, values.mean(0), color=colour, alpha=0.2, linewidth=0.6, zorder=1)
        values, x, width = np.array([_trailing_mean(of_run) for of_run in values]), x[SMOOTH - 1 :], 1.8
    step = max(1, len(x) // 6)
    upon = 2 if style["linestyle"] == "-" else 2.1  # what lies below a broken line is seen through it
    how: dict[str, Any] = {"linewidth": width, "markersize": 5, "markevery": (place % step, step), "zorder": upon}
    axes.plot(x, values.mean(0), label=name, **how | style)
    if len(curves) > 1:
        mean, spread = values.mean(0), values.std(0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


def _trailing_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of each round and those before it; none for the first rounds."""
    return np.convolve(values, np.full(SMOOTH, 1 / SMOOTH), "valid")


def _scale_by_factors(axes: Axes) -> None:
    """A logarithmic axis with plain numbers, also where it spans less than a factor of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.minorticks_off()


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


def _dots(shown: ItemResults) -> Figure:
    """For each method the mean over the second half, the best round, and what the paper prints."""
    most = max(len(shown.rows(condition)) for condition in shown.conditions)
    figure, panels = _panels(shown, height=0.9 + 0.23 * most)
    shared = [row.results for panel in panels for row in shown.rows(panel.condition)]
    more = [row.results for panel in panels for row in shown.more_seeds(panel.condition)]
    ours, ring = METHOD_COLOURS["rebafl"], METHOD_COLOURS["fedavg"]
    for panel in panels:
        axes, rows = panel.axes, shown.rows(panel.condition)
        places = range(len(rows))
        for place, row in enumerate(rows):
            mean, std = _spread(row)
            own = row.method in shown.item.ours
            colour, whose = (FIRST.get(row.method, ours), f"{row.name}, ") if own else (ours, "")
            label = f"{whose}second half, {_mean_over(shared)}"
            axes.errorbar(mean, place, xerr=std or None, fmt="D" if own else "o", color=colour, label=label)
        for place, mean, std in _over_more_seeds(shown, panel.condition, rows):
            axes.errorbar(mean, place + 0.25, xerr=std, label=f"second half, {_mean_over(more)}", **MORE_SEEDS)
        best = [row.mean("best") for row in rows]
        axes.scatter(
            best, places, marker="|", s=120, color="black", label=f"best round, {seeds_in_words(shared)}", zorder=3
        )
        if theirs := _theirs(shown, rows):
            y, x = zip(*theirs, strict=True)
            axes.scatter(x, y, s=70, facecolors="none", edgecolors=ring, label="paper", zorder=3)
        axes.set_yticks(places, [row.name for row in rows], fontsize=9)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # from the top down, no marker cut
        axes.set_xlabel("test accuracy (%)")
    _align(panels, [shown.item.conditions[panel.condition].partition(" ")[0] for panel in panels])
    _legend(figure, [panel.axes for panel in panels])
    return figure


def _align(panels: Sequence[Panel], datasets: Sequence[str]) -> None:
    """The same axis for panels of one data set; of different ones they are too far apart, but a point is as long."""
    found: dict[str, list[float]] = {}
    for panel, dataset in zip(panels, datasets, strict=True):
        found.setdefault(dataset, []).extend(panel.axes.get_xlim())
    longest = max(max(ends) - min(ends) for ends in found.values())
    for panel, dataset in zip(panels, datasets, strict=True):
        middle = (min(found[dataset]) + max(found[dataset])) / 2
        panel.axes.set_xlim(middle - longest / 2, middle + longest / 2)


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
            style = look(row.method, shown.item.shown_methods.index(row.method))
            styles[row.name] = style | (THIN if row.by_cloud_model else {})
    for number, (name, by_place) in enumerate(points.items()):
        means, stds = zip(*by_place.values(), strict=True)
        places = [place + 0.04 * (number - len(points) // 2) for place in by_place]  # error bars stand side by side
        axes.errorbar(places, means, yerr=stds if any(stds) else None, capsize=3, label=name, **styles[name])
    axes.set_xticks(range(len(conditions)), conditions)
    axes.set_ylabel("test accuracy (%), second half")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    shared = [row.results for condition in conditions for row in shown.rows(condition)]
    axes.legend(frameon=False, title=_mean_over(shared), title_fontsize=9)
    return figure
