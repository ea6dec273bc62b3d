"""`rebafl data`, `datasets` and `partition`: which data sets are known, and which client would hold which samples?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table
from rich.text import Text

from ..base.files import write_text
from ..data import KNOWN, load, whereabouts
from ..runs.experiment import split_data
from .terminal import HELP, Png, Quiet, out, say, show, show_table
from .words import Words, read_words

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    help="Data sets: which there are, and fetching them.\n\nExample: `rebafl data get cifar-10`",
)
SHOWN = 50  # clients that the table of a partition has room for


@app.command("list")
def datasets() -> None:
    """List the data sets known by name and where they are.

    Example: `rebafl datasets`
    """
    rows = [(known.name, known.about, whereabouts(known)) for known in KNOWN.values()]
    rows += [(name, "of another package", address) for name, address in KNOWN.installed().items()]
    show_table(("name", "what", "where"), rows)
    out.print(
        "Or your own: dataset=FILE.npz (x_train y_train x_test y_test), dataset=FOLDER of class folders, "
        "dataset=hf:NAME_OR_PATH (Hugging Face), or dataset=module:function."
    )


@app.command("get")
def get(name: Annotated[str, typer.Argument(help="A known data set.")]) -> None:
    """Fetch a data set, unless it was fetched before, and check it.

    Example: `rebafl data get cifar-10`
    """
    data = load(name, say)
    samples = f"{len(data.y_train):,} + {len(data.y_test):,} samples"
    out.print(f"{data.name} is complete and correct: {samples}, SHA-256 {data.digest}")


def partition(
    words: Words = None,
    png: Png = Path("partition.png"),
    save: Annotated[Path | None, typer.Option("--save", help="Write it as JSON, for partition.kind=file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Show which client would hold how much of each class, as a table and a picture.

    Example: `rebafl partition dataset=fashion-mini partition=dirichlet partition.alpha=0.3`
    """
    from ..report.figures import draw_partition  # matplotlib is slow to import, and most commands draw nothing

    settings, _ = read_words(words or [])
    data, split, warnings = split_data(settings, say=say)
    counts, title = split.table(), f"{settings.partition.name}, seed {settings.seed}"
    if not quiet:
        _show_counts(counts, data.classes, title)
    for warning in warnings:
        say(f"Warning: {warning}")
    if png:
        draw_partition(counts, data.classes, f"{settings.dataset}, {title}", png)
        if not quiet:
            out.print(Text(f"Drawn in {png}"), soft_wrap=True)
    if save:
        lists = [split.indices(client).tolist() for client in range(split.clients)]
        write_text(save, json.dumps(lists))
        use = f"partition=file partition.path={save}"
        if not quiet:
            out.print(Text(f"Saved in {save}; use it with {use}"), soft_wrap=True)


def _show_counts(counts: npt.NDArray[np.int64], classes: Sequence[str], title: str) -> None:
    """How many samples of each class the first clients hold."""
    table = Table(title=title, title_justify="left")
    for column in ("client", *classes, "samples"):
        table.add_column(Text(column), justify="right")
    for client, row in enumerate(counts[:SHOWN]):
        table.add_row(str(client), *(str(count) if count else "[dim]·" for count in row), str(row.sum()))
    show(table)
    if len(counts) > SHOWN:
        out.print(f"… and {len(counts) - SHOWN} more clients, all in the picture.")
