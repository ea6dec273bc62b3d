"""What do the paper's figures look like with our results? Each method looks the same everywhere, also in grey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..paper.item_results import ItemResults
from ..paper.items import PAPER, printed
from ..paper.results import Result
from .figures import COLOURS, METHOD_COLOURS, save

ENDINGS = (".png", ".pdf")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^vP*Xhd<>px+"  # one for each of the methods below
ORDER = (
    "ReBaFL", "FedAvg", "BSM-FedAvg", "FedDyn", "FedRS", "FedProx", "Scaffold", "MOON", "FedBABU", "FedLC",
    "FedAvg, all there", "FedAvg-FT", "label smoothing", "F-Aug", "R-BSM",
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
    line = place * (1 + place // len(LINES))  # where colours begin anew, lines come in another order
    return {"color": colour, "linestyle": LINES[line % len(LINES)], "marker": MARKERS[place % len(MARKERS)]}


def draw(shown: ItemResults, path: Path) -> list[Path]:
    """Draw an item as PNG and PDF beside `path`, a picture for each way it is shown; which, without the ending."""
    painters: dict[str, Callable[[ItemResults], Figure]] = {
        "curves": _curves,
        "diversity": partial(_curves, name="diversity"),
        "bars": _bars,
        "table": _dots,
        "lines": _lines,
    }
    paths = []
    for place, kind in enumerate(shown.item.shows if shown.results else ()):
        if kind in painters:
            paths.append(path.with_name(f"{path.name}-{kind}") if place else path)
            figure = painters[kind](shown)
            for ending in ENDINGS:
                save(figure, paths[-1].with_name(paths[-1].name + ending))
    return paths


@dataclass(frozen=True)
class Panel:
    """One pair of axes: some methods under one condition."""

    axes: Axes
    condition: str
    methods: Sequence[str]


def _panels(shown: ItemResults, height: float = 2.9) -> tuple[Figure, list[Panel]]:
    """A panel for each condition, and group of methods, that has results to compare (or any, if none has several)."""
    groups = shown.item.panels or {"": shown.item.methods}
    counted = [
        (condition, name, methods, sum(bool(shown.lookup(method, condition)) for method in methods))
        for condition in shown.item.conditions
        for name, methods in groups.items()
    ]
    least = min(2, max(count for *_, count in counted))
    drawn = [(condition, name, methods) for condition, name, methods, count in counted if count >= least]
    columns = min(2 if len(drawn) in (2, 4) else 3, len(drawn))
    rows = ceil(len(drawn) / columns)
    figure = Figure(figsize=(max(4.2 * columns, 5.5), height * rows + 0.8), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in grid[len(drawn) :]:
        spare.set_visible(False)
    for axes, (condition, name, _) in zip(grid, drawn, strict=False):
        axes.set_title(f"{condition}: {name}" if name else condition, loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, [Panel(axes, condition, methods) for axes, (condition, _, methods) in zip(grid, drawn, strict=False)]


def _legend(figure: Figure, panels: Sequence[Panel]) -> None:
    known: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    columns = int(figure.get_figwidth() // 1.6)  # inches that a name takes
    figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=min(5, columns), frameon=False)


def _curves(shown: ItemResults, name: str = "accuracy") -> Figure:
    """Accuracy, or weight diversity, over rounds; a band of one std where there are several seeds."""
    figure, panels = _panels(shown)
    for panel in panels:
        for place, method in enumerate(panel.methods):
            if results := list(shown.on_common_seeds(method, panel.condition).values()):
                _curve(panel.axes, results, name, method, place)
        panel.axes.set_xlabel("communication round")
        panel.axes.xaxis.set_major_locator(MaxNLocator("auto", steps=(1, 2, 5, 10)))
        panel.axes.set_ylabel("weight diversity Λ" if name == "diversity" else "test accuracy (%)")
        if name == "diversity":
            panel.axes.set_yscale("log")
    _legend(figure, panels)
    return figure


def _curve(axes: Axes, results: list[Result], name: str, method: str, place: int) -> None:
    length = min(result.rounds for result in results)
    values = np.array([[np.nan if v is None else v for v in result.curves[name][:length]] for result in results])
    x, mean = np.arange(1, length + 1), values.mean(0)
    style = look(method, place)
    step = max(1, length // 6)
    axes.plot(x, mean, label=method, linewidth=1.4, markersize=4, markevery=(place % step, step), **style)
    if len(results) > 1:
        spread = values.std(0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)


def _over_seeds(shown: ItemResults, condition: str, measure: str) -> dict[str, tuple[float, float]]:
    """Mean and std over seeds, method by method; the std of one seed is shown as nothing."""
    over_seeds = {}
    for method in shown.item.methods:
        if results := shown.on_common_seeds(method, condition):
            values = [result.measure(measure) for result in results.values()]
            over_seeds[method] = (float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)
    return over_seeds


def _theirs(shown: ItemResults, condition: str, methods: Sequence[str]) -> list[tuple[int, float]]:
    """The paper's numbers, by place; beside anything smaller than its own scale they would say nothing."""
    values = [(place, printed(shown.item, condition, method)) for place, method in enumerate(methods)]
    return [(place, value) for place, value in values if value is not None] if shown.scale.name == PAPER else []


def _bars(shown: ItemResults) -> Figure:
    """One bar per method: the best round, and a line at the mean of the last ten."""
    figure, panels = _panels(shown)
    hatches = cycle(("", "//", "\\\\", "xx", "..", "--", "++", "oo", "**"))
    hatch = {method: next(hatches) for method in shown.item.methods}
    for panel in panels:
        axes = panel.axes
        best, tail = (_over_seeds(shown, panel.condition, name) for name in ("best", "last10"))
        for place, (method, (mean, std)) in enumerate(best.items()):
            style = {"color": look(method, place)["color"], "hatch": hatch[method]}
            axes.bar(place, mean, yerr=std or None, alpha=0.75, edgecolor="black", linewidth=0.5, capsize=3, **style)
            axes.plot([place - 0.4, place + 0.4], [tail[method][0]] * 2, color="black", linewidth=2)
        if theirs := _theirs(shown, panel.condition, list(best)):
            x, y = zip(*theirs, strict=True)
            axes.scatter(x, y, s=60, facecolors="white", edgecolors="black", zorder=3, label="paper")
        axes.set_xticks(range(len(best)), list(best), rotation=40, ha="right", fontsize=8)
        axes.set_ylabel("test accuracy (%)\nbar: best; line: last ten")
    _legend(figure, panels)
    return figure


def _dots(shown: ItemResults) -> Figure:
    """For each method our best round, our last ten, and what the paper prints."""
    most = max(Counter(condition for _, condition in shown.results).values())
    figure, panels = _panels(shown, height=0.9 + 0.23 * most)
    ours, ring = METHOD_COLOURS["rebafl"], METHOD_COLOURS["fedavg"]
    for panel in panels:
        axes = panel.axes
        best, tail = (_over_seeds(shown, panel.condition, name) for name in ("best", "last10"))
        rows = list(best)
        means, stds = zip(*best.values(), strict=True)
        axes.errorbar(
            means, range(len(rows)), xerr=stds if any(stds) else None, fmt="o", color=ours, label="best, ours"
        )
        last = [mean for mean, _ in tail.values()]
        axes.scatter(last, range(len(rows)), marker="|", s=120, color="black", label="mean of last ten, ours", zorder=3)
        if theirs := _theirs(shown, panel.condition, rows):
            y, x = zip(*theirs, strict=True)
            axes.scatter(x, y, s=70, facecolors="none", edgecolors=ring, label="paper", zorder=3)
        axes.set_yticks(range(len(rows)), rows, fontsize=9)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # from the top down, no marker cut
        axes.set_xlabel("test accuracy (%)")
    _legend(figure, panels)
    return figure


def _lines(shown: ItemResults) -> Figure:
    """The best accuracy of each method against the conditions."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    conditions = list(shown.item.conditions)
    for place, method in enumerate(shown.item.methods):
        scores = {x: _over_seeds(shown, condition, "best").get(method) for x, condition in enumerate(conditions)}
        points = {x: score for x, score in scores.items() if score}
        if points:
            means, stds = zip(*points.values(), strict=True)
            error = stds if any(stds) else None
            axes.errorbar(list(points), means, yerr=error, capsize=3, label=method, **look(method, place))
    axes.set_xticks(range(len(conditions)), conditions)
    axes.set_ylabel("best test accuracy (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
