"""`rebafl paper`: every table and figure of the paper, with our numbers beside the printed ones."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError
from ..paper.forecast import Forecast, Forecaster, seconds_left, slowdown
from ..paper.item_results import ItemResults
from ..paper.items import ALL, Cell, cells, cells_of, find_item, find_items, find_scale, item_names, scale_names
from ..paper.results import count_finished, missing
from ..paper.runner import OutOfTime, run_cell
from ..paper.verify import choose
from ..report.paper_claims import compared
from ..report.paper_tables import tables
from ..runs.events import Event, Listener, RoundLine
from ..runs.record import Record
from .terminal import HELP, AcceptChanges, AsJson, Display, err, in_words, out, progress_bar, say, show_table
from .verify import Rounds, Work, verify_all
from .words import parse_seeds, parse_time

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode="markdown",
    help="The paper's tables and figures: run them in slices, and see our numbers beside the printed ones.\n\n"
    "Example: `rebafl paper run table1 --scale quick`, then `rebafl paper show table1 --scale quick`",
)
Names = Annotated[list[str], typer.Argument(metavar="ITEM…", help="Items of `rebafl paper list`, or `all`.")]
ScaleName = Annotated[str, typer.Option("--scale", help="paper or quick.")]
Results = Annotated[Path, typer.Option("--results", help="Where finished cells are kept.")]
KEPT = Path("results")


@app.command("list")
def list_items(results: Results = KEPT) -> None:
    """List the items, and how many of their cells are finished at each scale.

    Example: `rebafl paper list`
    """
    rows = []
    for item in map(find_item, item_names()):
        counts = (count_finished(cells(item, find_scale(scale)), results) for scale in scale_names())
        rows.append((item.name, item.title, *(f"{done} of {total}" for done, total in counts)))
    show_table(("item", "what it is", *(f"{name}: finished" for name in scale_names())), rows)


@app.command()
def run(
    names: Names,
    scale: ScaleName = "quick",
    budget: Annotated[str, typer.Option(help="Stop after this long: 2h, 45m, 1h30m; what is done is saved.")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Only this method; may be given several times.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Only this condition, such as 'cifar-10 m=20'.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2.")] = "0",
    rounds: Annotated[int, typer.Option(min=0, help="Other than the scale's number of rounds.")] = 0,
    results: Results = KEPT,
    work: Annotated[Path, typer.Option("--work", help="Where runs are kept while they are unfinished.")] = Path(
        "runs/paper"
    ),
    accept_changes: AcceptChanges = False,
) -> None:
    """Run what is missing of some items. Killed at any time, it is resumed by the same command.

    Examples:

    * `rebafl paper run table1 --scale quick`

    * `rebafl paper run all --scale quick --budget 2h`

    * `rebafl paper run table1 --scale paper --only FedAvg --only ReBaFL --where 'cifar-10 m=20' --seeds 0,1,2`
    """
    until = time.monotonic() + (parse_time(budget) if budget else float("inf"))
    chosen = cells_of(find_items(names), find_scale(scale), parse_seeds(seeds), only or (), where or ())
    chosen = [cell.with_rounds(rounds) if rounds else cell for cell in chosen]
    left = missing(chosen, results)
    if not left:
        say(f"All is finished: {len({cell.key for cell in chosen})} cells in {results}.")
        return
    forecasts = _forecasts(left, work)
    say(f"{len(left)} cells to run, about {in_words(seconds_left(forecasts.values()))} at the speed just measured.")
    _run_all(left, forecasts, results, work, until, accept_changes)
    say(f"Finished: {len(left)} cells, kept in {results}. See: rebafl paper show {names[0]} --scale {scale}")


def _forecasts(left: list[Cell], work: Path) -> dict[str, Forecast]:
    """By the key of the cell."""
    forecaster, forecasts = Forecaster(), {}
    if not err.is_terminal:
        say("Measuring the speed of each method …")
    with progress_bar(disable=not err.is_terminal) as progress:
        bar = progress.add_task("measuring the speed of each method", total=len(left), facts="cells")
        for cell in left:
            forecasts[cell.key] = forecaster.resumed(cell, Record(work / cell.key))
            progress.advance(bar)
    return forecasts


def _run_all(
    left: list[Cell], forecasts: dict[str, Forecast], results: Path, work: Path, until: float, accept_changes: bool
) -> None:
    """Cell by cell, saying before each how long it and all that are left will take, by the rounds finished so far."""
    all_forecasts = forecasts.values()
    for number, cell in enumerate(left, 1):
        forecast = forecasts[cell.key]
        say(
            f"[{number}/{len(left)}] {cell.method}, {cell.condition}, seed {cell.settings.seed}: "
            f"about {in_words(forecast.seconds_left(slowdown(all_forecasts)))}, "
            f"all that is left {in_words(seconds_left(all_forecasts))}"
        )
        try:
            with Display(cell.settings, work / cell.key, silent=False) as display:
                listen = _correcting(display, forecast, all_forecasts)
                run_cell(cell, results, work, until, listen, display.say, accept_changes)
        except OutOfTime:
            say(f"Time is up after {number - 1} of {len(left)} cells. Resume with the same command.")
            raise typer.Exit from None
        except KeyboardInterrupt:
            say("\nStopped; finished rounds are saved. Resume with the same command.")
            raise typer.Exit(130) from None


def _correcting(display: Display, forecast: Forecast, all_forecasts: Collection[Forecast]) -> Listener:
    """A listener that shows a run and corrects its forecast by every finished round."""

    def listen(event: Event) -> None:
        if isinstance(event, RoundLine):
            forecast.correct(event)
            display.note = f"all that is left {in_words(seconds_left(all_forecasts))}"
        display.listen(event)

    return listen


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
    target: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path(),
) -> None:
    """Show an item: our numbers, the paper's, the verdicts; and draw it.

    Example: `rebafl paper show table1 --scale paper`
    """
    from ..report.paper_figures import draw  # matplotlib is slow to import

    shown = ItemResults(find_item(name), find_scale(scale), results)
    if not shown.results:
        raise UserError(
            f"Nothing of {name} is finished at scale {scale}; run: rebafl paper run {name} --scale {scale}."
        )
    for condition, (header, rows) in tables(shown, always_printed=True):
        show_table(header, rows, condition)
    for reading in shown.verdicts():
        out.print(Text(f"{reading.decision}: {reading.claim.text}"), soft_wrap=True)
        for line in compared(reading):
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
    race: Annotated[
        Path, typer.Option("--race", help="What `rebafl bench` measured, for the claim on seconds.")
    ] = Path("docs/measured/race.json"),
) -> None:
    """Write the page with all tables, figures and verdicts.

    Example: `rebafl paper report`
    """
    from ..report.reproduction import write_report  # matplotlib is slow to import

    write_report(results, page, race)
    out.print(Text(f"Written: {page}, and its figures beside it"), soft_wrap=True)
