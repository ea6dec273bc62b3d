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
from rebafl.report.paper_figures import draw_curve, look, seeds_in_words

FIGURES = HERE.parent / "docs" / "figures"
METHODS = (OURS, *RIVALS, "FedAvg")
BAND = "of several seeds the mean, and shaded ± one standard deviation"
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
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes, condition in zip(panels, conditions, strict=False):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(quantity, fontsize=8)
        found = {method: list(by_seed(condition, method).values()) for method in METHODS}
        axes.set_title(f"{condition} ({seeds_in_words(filter(None, found.values()))})", loc="left", fontsize=9)
        for place, (method, results) in enumerate(found.items()):
            if results:
                draw_method(axes, method, place, results, by_bytes=quantity != "round")
    for axes in panels[len(conditions) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("test accuracy (%)", fontsize=8)
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    known = [method for method in METHODS if method in lines]
    figure.legend(
        [lines[m] for m in known], known, loc="outside lower center", ncols=len(known), frameon=False,
        title=BAND, title_fontsize=9,
    )  # fmt: skip
    save(figure, FIGURES / name)


def draw_method(axes: Axes, method: str, place: int, results: Sequence[Result], by_bytes: bool) -> None:
    sent = np.array([np.add(result.curves["bytes_up"], result.curves["bytes_down"]) for result in results])
    x = sent.cumsum(1).mean(0) / 1e6 if by_bytes else None
    draw_curve(axes, [r.curves["accuracy"] for r in results], method, look(method.split(",")[0], place), place, x)


if __name__ == "__main__":
    main()
