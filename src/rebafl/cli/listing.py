"""`rebafl runs` and `tag`: which runs are there, how far is each, and in what do they differ?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..base.config import Plain
from ..base.errors import UserError, exists
from ..base.reading import read_bytes
from ..runs.record import ROUNDS, Record
from ..runs.tags import change_tags
from ..runs.tally import tally
from ..ui.folder import Folder
from .terminal import AsJson, RunDirs, given_path, in_words, out, say, show

Order = Literal["name", "best", "last", "second_half", "time", "changed"]
TROUBLE = re.compile(rb'"refused": \{"|"missing": |"updated": false')  # in rounds.jsonl
COLUMNS = ("state", "rounds", "best", "last", "second\nhalf", "time", "left")


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where the runs are, at any depth.", parser=given_path)
    ] = Path("runs"),
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only runs with this tag; several: with all.")] = None,
    sort: Annotated[Order, typer.Option("--sort", help="By what; numbers from the highest down.")] = "name",
    as_json: AsJson = False,
) -> None:
    """List runs: what sets each apart, its state and progress, its accuracy, time and tags.

    Examples:

    * `rebafl runs`  (all runs below runs/)

    * `rebafl runs runs/sweep --sort second_half --tag baseline`
    """
    if not exists(folder):
        raise UserError(f"There is no folder {folder}; give one that holds runs.")
    wanted, found = set(tag or ()), Folder([folder])
    rows = [row for row in found.table()["runs"] if wanted <= set(row["tags"])]
    for row in rows:
        row["troubles"] = {} if row["problem"] else _troubles(found.path(row["name"]))
    rows.sort(key=lambda row: row["name"] if sort == "name" else -(row[sort] or 0.0))
    if as_json:
        print(json.dumps(rows))
    elif rows:
        show(_table(rows))
    else:
        with_tags = f" with the tag {', '.join(sorted(wanted))}" if wanted else ""
        out.print(Text(f"There is no run{with_tags} in {folder}."), soft_wrap=True)


def _table(rows: list[Plain]) -> Table:
    troubles = list(dict.fromkeys(title for row in rows for title in row["troubles"]))
    tagged = any(row["tags"] for row in rows)
    note = "Percent, on the test set; best is chosen on it, so it is too good."
    table = Table(box=box.SIMPLE_HEAD, caption=note, caption_justify="left")
    table.add_column("run", min_width=14, overflow="fold")
    table.add_column("differs in", min_width=14, overflow="fold")
    for title in (*COLUMNS, *troubles):
        table.add_column(title, justify="right", no_wrap=True)
    if tagged:
        table.add_column("tags", overflow="fold")
    for row in rows:
        cells = [row["state"], f"{row['done']}/{row['rounds']}"]
        cells += [_percent(row[name]) for name in ("best", "last", "second_half")]
        cells += [in_words(row["time"]), "" if row["left"] is None else in_words(row["left"])]
        cells += [row["troubles"].get(title, "") for title in troubles]
        table.add_row(*map(escape, [row["name"], _apart(row), *cells, *([", ".join(row["tags"])] if tagged else [])]))
    return table


def _troubles(path: Path) -> dict[str, str]:
    """What was refused, missing or discarded; most runs have nothing of it, and their lines need not be read."""
    lines = path / ROUNDS
    return tally(Record(path).rounds()).words() if exists(lines) and TROUBLE.search(read_bytes(lines)) else {}


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _apart(row: Plain) -> str:
    """`fedavg, seed=0`; of a run that cannot be read, why."""
    if row["problem"]:
        return str(row["problem"])
    values: dict[str, Any] = {name: value for name, value in row["settings"].items() if value is not None}
    kind = values.pop("algorithm.kind", "")
    named = [f"{name.removesuffix('.kind').removeprefix('algorithm.')}={value}" for name, value in values.items()]
    return ", ".join(filter(None, [str(kind), *named]))


def tag(
    runs: RunDirs,
    add: Annotated[list[str] | None, typer.Option("--add", "-a", help="A word to find it by.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", "-r", help="A word to take away.")] = None,
) -> None:
    """Give runs words to find them by, or take some away; without either, show those they have.

    Example: `rebafl tag runs/a runs/b --add baseline`, then `rebafl runs --tag baseline`
    """
    for path in runs:
        tags = change_tags(path, add or (), remove or ())
        say(f"{path}: {', '.join(tags) or 'no tags'}")
