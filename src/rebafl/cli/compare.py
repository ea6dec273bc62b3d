"""`rebafl compare`: which run is better?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..report.summary import comparison_json, comparison_table, group_runs, mixed_bits, read_run, repeated_seeds
from .terminal import AsJson, Png, out, say, show


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.")],
    png: Png = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table and a picture; seeds of one setting become mean ± std.

    Example: `rebafl compare runs/fedavg runs/rebafl --png curves.png`
    """
    from ..report import figures  # matplotlib is slow to import, and most commands draw nothing

    unique = {path.resolve(): path for path in runs}
    groups = group_runs([read_run(path) for path in unique.values()])
    for warning in filter(None, (mixed_bits(groups), repeated_seeds(groups))):
        say(f"Warning: {warning}")
    png = png or (None if as_json else Path("curves.png"))
    if png:
        figures.draw_curves(groups, png)
    if as_json:
        print(json.dumps(comparison_json(groups)))
        return
    show(comparison_table(groups))
    if len({group.runs[0].config["rounds"] for group in groups}) > 1:
        out.print("[yellow]The runs differ in their number of rounds.")
    out.print(Text(f"Curves drawn in {png}"), soft_wrap=True)
