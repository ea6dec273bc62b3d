"""`rebafl compare`: which run is better, by how much, and at what price?"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError, exists
from ..report.comparison import Measure, comparison_json, comparison_table, further_tables
from ..report.summary import Run, group_runs, mixed_bits, read_run, repeated_seeds
from ..runs.record import CONFIG, rounds_done
from ..runs.tags import read_tags
from ..ui.folder import find_runs
from .terminal import AsJson, Png, given_path, out, say, show


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run directories, folders of them, or LABEL=RUN for either.")
    ],
    png: Png = None,
    as_json: AsJson = False,
    to: Annotated[
        float | None,
        typer.Option("--to", help="Percent, 0 to 100: rounds, bytes and seconds until a run has them."),
    ] = None,
    by: Annotated[Measure, typer.Option("--by", help="Which number is compared seed by seed.")] = "last10",
    against: Annotated[
        str, typer.Option("--against", help="The label that the others are compared with; else the first.")
    ] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Of folders, only runs with this tag.")] = None,
) -> None:
    """Compare runs in a table and a picture; seeds of one setting become mean ± std.

    Settings that share at least two seeds are also compared seed by seed, with a confidence interval and a paired test.

    Examples:

    * `rebafl compare runs/fedavg runs/rebafl --png curves.png`

    * `rebafl compare runs/sweep --to 80 --by second_half --against fedavg`  (all runs of a folder)

    * `rebafl compare "without dropout=runs/a" "with dropout=runs/b"`
    """
    if to is not None and not 0 <= to <= 100:
        raise UserError(f"--to {to:g} is no percentage; give a number from 0 to 100.")
    from ..report import figures  # matplotlib is slow to import, and most commands draw nothing

    groups = group_runs(_named_runs(runs, set(tag or ())))
    for warning in filter(None, (mixed_bits(groups), repeated_seeds(groups))):
        say(f"Warning: {warning}")
    png = png or (None if as_json else Path("curves.png"))
    if png:
        figures.draw_curves(groups, png)
    if as_json:
        print(json.dumps(comparison_json(groups, to, by, against)))
        return
    for table in (comparison_table(groups), *further_tables(groups, to, by, against)):
        show(table)
    if len({group.runs[0].config["rounds"] for group in groups}) > 1:
        out.print("[yellow]The runs differ in their number of rounds.")
    out.print(Text(f"Curves drawn in {png}"), soft_wrap=True)


def _named_runs(words: Iterable[str], tags: set[str]) -> list[Run]:
    """The runs that words name, each once; of a folder those that have finished a round."""
    found: dict[Path, Run] = {}
    for word in words:
        label, path = _label_and_path(word)
        for run in _below(path, tags):
            found.setdefault(run.resolve(), read_run(run, label))
    return list(found.values())


def _label_and_path(word: str) -> tuple[str, Path]:
    """`LABEL=RUN` or `RUN`; a path may have an equals sign itself."""
    label, equals, path = word.partition("=")
    return (label, Path(path)) if equals and label and path and not exists(Path(word)) else ("", given_path(word))


def _below(path: Path, tags: set[str]) -> list[Path]:
    if exists(path / CONFIG) or not path.is_dir():
        return [path]
    below = [run for run in find_runs([path]).values() if tags <= set(read_tags(run))]
    if not below:
        raise UserError(f"{path} holds no run, and no run{' with these tags' if tags else ''} is below it.")
    begun = [run for run in below if rounds_done(run)]
    if len(begun) < len(below):
        say(f"{len(below) - len(begun)} of {len(below)} runs in {path} have no finished round yet and are left out.")
    if not begun:
        raise UserError(f"None of the {len(below)} runs in {path} has a finished round yet.")
    return begun
