"""What does it look like? Learning curves and partitions as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.errors import UserError
from ..runs.measures import last_ten, last_ten_std, tail_name
from .summary import Group

matplotlib.use("Agg")

# Okabe and Ito's palette, told apart by colour-blind readers; line styles tell them apart in grey.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
TITLE_WIDTH, LEGEND_WIDTH = 96, 60  # letters that fit, in the whole width and in half of it
STYLES = ("-", "-", "--", "-.", ":")
FACTS = (
    ("dataset", "", "{}"),
    ("partition", "kind", "{} split"),
    ("partition", "clients", "{} clients"),
    ("partition", "classes", "{} classes each"),
    ("participation", "kind", "{} participation"),
    ("participation", "p", "p = {}"),
)
METHOD_COLOURS = {"fedavg": "#D55E00", "rebafl": "#0072B2", "bsm-fedavg": "#009E73"}


def draw_curves(groups: Sequence[Group], path: Path) -> None:
    """Accuracy over rounds, a shaded band over seeds; below, how much it jumps from round to round."""
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.2])
    spare = cycle([colour for colour in COLOURS if colour not in METHOD_COLOURS.values()])
    used: set[str] = set()
    for group, style in zip(groups, cycle(STYLES), strict=False):
        length = min(len(run.rounds) for run in group.runs)
        curves = np.array([run.accuracy[:length] for run in group.runs])
        own = METHOD_COLOURS.get(str(group.runs[0].config["algorithm"]["kind"]), "")
        colour = own if own and own not in used else next(spare)
        used.add(colour)
        _draw_group(top, bottom, group.label, curves, colour, style)
    top.set_ylabel("test accuracy (%)")
    bottom.set_ylabel("change from the\nround before (points)")
    bottom.set_xlabel("communication round")
    bottom.set_ylim(bottom=0)
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (top, bottom):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    seeds = "; band: std over seeds" if any(len(group.runs) > 1 for group in groups) else ""
    title = fill(_shared_facts(groups) + seeds, TITLE_WIDTH)
    top.set_title(title, loc="left", fontsize=11)
    legend = figure.legend(loc="outside lower center", ncols=2 if len(groups) > 1 else 1, frameon=False, fontsize=9)
    lines = [text.get_text().count("\n") + 1 for text in legend.get_texts()]
    columns = [lines[: -(-len(lines) // 2)], lines[-(-len(lines) // 2) :]] if len(groups) > 1 else [lines]
    figure.set_figheight(5.4 + 0.19 * title.count("\n") + max(0.16 * sum(part) + 0.08 * len(part) for part in columns))
    save(figure, path)


def _draw_group(top: Axes, bottom: Axes, label: str, curves: npt.NDArray[np.float64], colour: str, style: str) -> None:
    rounds = np.arange(1, curves.shape[1] + 1)
    mean = curves.mean(0)
    tail, spread = (np.mean([of(curve) for curve in curves.tolist()]) for of in (last_ten, last_ten_std))
    text = fill(f"{label}: {tail_name(curves.shape[1])} rounds {tail:.1f}, spread {spread:.1f}", LEGEND_WIDTH)
    marker = "o" if len(rounds) == 1 else ""
    top.plot(rounds, mean, color=colour, linestyle=style, linewidth=1.8, marker=marker, label=text)
    if len(curves) > 1:
        band = curves.std(0, ddof=1)
        top.fill_between(rounds, mean - band, mean + band, color=colour, alpha=0.18, linewidth=0)
    jumps = np.abs(np.diff(curves, axis=1)).mean(0)
    bottom.plot(rounds[1:], jumps, color=colour, linestyle=style, linewidth=1.4)


def _shared_facts(groups: Sequence[Group]) -> str:
    """What all runs have in common, in words."""
    configs = [run.config for group in groups for run in group.runs]
    facts = []
    for section, name, text in FACTS:
        first, *others = (config.get(section, {}).get(name) if name else config.get(section) for config in configs)
        if first is not None and all(other == first for other in others):
            facts.append(text.format(first))
    return ", ".join(facts)


def draw_partition(table: npt.NDArray[np.int64], classes: Sequence[str], title: str, path: Path) -> None:
    """Clients against classes; the darker, the more samples."""
    clients = len(table)
    figure = Figure(figsize=(1.5 + 0.55 * len(classes), min(24.0, 1.6 + 0.24 * clients)), layout="constrained")
    axes = figure.subplots()
    most = table.max()
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))  # one sample is seen, none is white
    image = axes.imshow(np.where(table > 0, table, np.nan), aspect="auto", cmap=shades, vmin=1, vmax=max(2, most))
    axes.set_xticks(range(len(classes)), classes, rotation=45, ha="right")
    if clients <= 60:
        axes.set_yticks(range(clients))
        axes.set_yticks(np.arange(-0.5, clients), minor=True)
        axes.set_xticks(np.arange(-0.5, len(classes)), minor=True)
        axes.grid(which="minor", color="0.9", linewidth=0.6)
        axes.tick_params(which="minor", length=0)
    axes.set_ylabel("client")
    axes.set_title(f"{title}: {clients} clients, {int(table.sum()):,} samples", loc="left", fontsize=11)
    figure.colorbar(image, label="samples", shrink=0.8)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # no date in a PDF: the same picture is the same file
        figure.savefig(path, dpi=150, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be written as a picture ({error}).") from None


def draw_race(measured: Mapping[str, Any], path: Path) -> None:
    """Seconds per round of each contender, with the range over repeats; ours first."""
    rows = [row for row in measured["contenders"] if not row.get("absent")]
    figure = Figure(figsize=(9, 1.3 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        low, high = row["spread"]
        seconds = row["seconds"]
        colour = METHOD_COLOURS["rebafl"] if row["name"].startswith("rebafl") else "#999999"
        axes.barh(place, seconds, color=colour, height=0.65)
        axes.plot([low, high], [place, place], color="black", linewidth=1.5)
        ratio = "" if row["name"].startswith("rebafl") else f"   ours / theirs {row['ours_to_theirs']:.2f}"
        axes.text(max(high, seconds), place, f"  {seconds:.1f} s{ratio}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(right=1.55 * max(row["spread"][1] for row in rows))
    axes.set_xlabel("seconds per round: median, and the range over repeats")
    size = measured["workload"]
    title = f"{size['active']} clients of {size['samples']} images, {size['epochs']} epochs, and all test images"
    figure.suptitle(f"{size['dataset']}: {title}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def draw_scale(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Seconds of a round against each thing it may grow with."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(2, 2).flat, curves.items(), strict=True):
        axes.plot([p["x"] for p in points], [p["seconds"] for p in points], "o-", color=METHOD_COLOURS["rebafl"])
        axes.set_xlabel(name, fontsize=9)
        axes.set_ylabel("seconds per round")
        if len(points) > 2:
            axes.set_xscale("log")
        else:
            axes.set_xticks([p["x"] for p in points])
        seconds = [p["seconds"] for p in points]
        if max(seconds) > 5 * min(seconds):
            axes.set_yscale("log")
        else:  # next to no growth should look like it
            axes.set_ylim(0, 1.2 * max(seconds))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
