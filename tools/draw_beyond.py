"""How fast does each method learn, by rounds and by bytes? Draws docs/figures/beyond-*.png from results/beyond.

python tools/draw_beyond.py
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beyond import HERE, OURS, PARTS, RIVALS, by_seed
from rebafl.paper.results import Result
from rebafl.report.figures import save
from rebafl.report.paper_figures import look

FIGURES = HERE.parent / "docs" / "figures"
METHODS = (OURS, *RIVALS, "FedAvg")
BY_BYTES = ("m=50, p=0.1", "m=20, p=0.5", "CIFAR-10, m=20, p=0.5")


def main() -> None:
    draw(PARTS["report"]["conditions"], "round", "beyond-rounds.png")
    draw(BY_BYTES, "megabytes, all clients, both ways", "beyond-bytes.png")


def draw(conditions: Sequence[str], quantity: str, name: str) -> None:
    """A panel for each condition; of several seeds the mean, and a band of one standard deviation."""
    conditions = [condition for condition in conditions if by_seed(condition, OURS)]
    columns = min(4, len(conditions))
    rows = ceil(len(conditions) / columns)
    figure = Figure(figsize=(3.2 * columns, 2.5 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, condition in zip(panels, conditions, strict=False):
        axes.set_title(condition, loc="left", fontsize=9)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(quantity, fontsize=8)
        for place, method in enumerate(METHODS):
            if results := list(by_seed(condition, method).values()):
                draw_method(axes, method, place, results, by_bytes=quantity != "round")
    for axes in panels[len(conditions) :]:
        axes.set_visible(False)
    panels[0].set_ylabel("test accuracy (%)", fontsize=8)
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    known = [method for method in METHODS if method in lines]
    figure.legend([lines[m] for m in known], known, loc="outside lower center", ncols=len(known), frameon=False)
    save(figure, FIGURES / name)


def draw_method(axes: Axes, method: str, place: int, results: Sequence[Result], by_bytes: bool) -> None:
    accuracy = np.array([result.curves["accuracy"] for result in results])
    sent = np.array([np.add(result.curves["bytes_up"], result.curves["bytes_down"]) for result in results])
    x = sent.cumsum(1).mean(0) / 1e6 if by_bytes else np.arange(1, accuracy.shape[1] + 1)
    style = look(method.split(",")[0], place) | {"marker": ""}
    axes.plot(x, accuracy.mean(0), label=method, linewidth=1.3, **style)
    if len(results) > 1:
        spread = accuracy.std(0, ddof=1)
        low, high = accuracy.mean(0) - spread, accuracy.mean(0) + spread
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


if __name__ == "__main__":
    main()
