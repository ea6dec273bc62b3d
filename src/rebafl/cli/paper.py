"""`rebafl paper`: every table and figure of the paper, with our numbers beside the printed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError, exists
from ..paper.item_results import Count, ItemResults, counted_once
from ..paper.items import ALL, find_item, find_items, find_scale, item_names, scale_names
from ..paper.verify import choose
from ..report.paper_claims import by_their_numbers, compared
from ..report.paper_tables import tables
from .paper_run import KEPT, Results, run
from .terminal import HELP, AsJson, out, show_table
from .verify import Rounds, Work, verify_all

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode="markdown",
    help="The paper's tables and figures: run them in slices, and see our numbers beside the printed ones.\n\n"
    "Example: `rebafl paper run table1 --scale quick`, then `rebafl paper show table1 --scale quick`",
)
ScaleName = Annotated[str, typer.Option("--scale", help="paper or quick.")]
Race = Annotated[Path, typer.Option("--race", help="What `rebafl bench` measured, for the claim on seconds.")]
MEASURED = Path("docs/measured/race.json")
NO_RESULTS = "There is no folder {} here (--results names the folder of finished cells)"


@app.command("list")
def list_items(results: Results = KEPT) -> None:
    """List the items, and how many of their cells are finished at each scale.

    Example: `rebafl paper list`
    """
    if not results.is_dir():
        out.print(Text(f"{NO_RESULTS.format(results)}."), soft_wrap=True)
    items, scales = [find_item(name) for name in item_names()], [find_scale(name) for name in scale_names()]
    shown = [[ItemResults(item, scale, results) for scale in scales] for item in items]
    rows = [
        (item.name, item.title, *(_finished(counted_once([at_scale])) for at_scale in of_item))
        for item, of_item in zip(items, shown, strict=True)
    ]
    every = [counted_once(at_scale) for at_scale in zip(*shown, strict=True)]
    ours = ", ".join(dict.fromkeys(method for item in items for method in item.ours)) or "none"
    rows += [
        (ALL, "each cell once, also where items share it", *map(_finished, every)),
        ("", "beside them: further seeds of these cells", *(str(count.further_seeds) for count in every)),
        ("", f"beside them: methods of this project ({ours})", *(str(count.ours) for count in every)),
    ]
    show_table(("item", "what it is", *(f"{scale.name}: finished" for scale in scales)), rows)


def _check_race(path: Path) -> None:
    if path != MEASURED and not exists(path):
        raise UserError(f"There is no file {path}; --race takes what `rebafl bench` wrote.")


def _finished(count: Count) -> str:
    return f"{count.finished} of {count.of}"


app.command()(run)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]…", help="Items; default: all.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="How many finished cells to run again.")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which: the same seed chooses the same.")] = 0,
    rounds: Rounds = 0,
    scale: ScaleName = "quick",
    results: Results = KEPT,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """Run some finished cells again and compare every number to the bit; see `rebafl verify --help`.

    Examples:

    * `rebafl paper verify --sample 10 --rounds 2`

    * `rebafl paper verify table1 --scale paper --sample 1 --seed 3`
    """
    chosen = choose(find_items(names or [ALL]), find_scale(scale), results, sample, seed)
    verify_all(chosen, rounds, work, as_json)


@app.command("show")
def show_item(
    name: Annotated[str, typer.Argument(metavar="ITEM")],
    scale: ScaleName = "quick",
    results: Results = KEPT,
    race: Race = MEASURED,
    target: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path(),
) -> None:
    """Show an item: our numbers, the paper's, the verdicts; and draw it.

    Example: `rebafl paper show table1 --scale paper`
    """
    from ..report.paper_figures import draw  # matplotlib is slow to import
    from ..report.reproduction import read_race

    _check_race(race)
    shown = ItemResults(find_item(name), find_scale(scale), results, read_race(race))
    if not shown.results:
        nothing = f"Nothing of {name} is finished at scale {scale}" if results.is_dir() else NO_RESULTS.format(results)
        raise UserError(f"{nothing}; run: rebafl paper run {name} --scale {scale}.")
    if shown.item.note:
        out.print(Text(shown.item.note), soft_wrap=True)
    for condition, (header, rows) in tables(shown, always_printed=True):
        show_table(header, rows, condition)
    for reading in shown.readings:
        out.print(Text(f"{reading.decision}: {reading.claim.text}"), soft_wrap=True)
        for line in (*compared(reading), *by_their_numbers(shown.item, reading.claim)):
            out.print(Text(f"  {line}"), soft_wrap=True)
    for trouble in shown.troubles():
        out.print(Text(trouble, "yellow"), soft_wrap=True)
    if shown.pending:
        out.print(Text(f"Pending: {shown.pending}"), soft_wrap=True)
    for path in draw(shown, target):
        out.print(Text(f"Drawn in {path}.png and {path}.pdf"), soft_wrap=True)


@app.command()
def report(
    results: Results = KEPT,
    page: Annotated[Path, typer.Option("--page", help="The page to write.")] = Path("docs/reproduction.md"),
    race: Race = MEASURED,
) -> None:
    """Write the page with all tables, figures and verdicts.

    Example: `rebafl paper report`
    """
    from ..report.reproduction import write_report  # matplotlib is slow to import

    _check_race(race)
    write_report(results, page, race)
    out.print(Text(f"Written: {page}, and its figures beside it"), soft_wrap=True)
