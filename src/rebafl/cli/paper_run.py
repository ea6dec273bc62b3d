"""`rebafl paper run`: cells of the paper, those that are named or those that decide open claims soonest, in slices."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import UserError
from ..paper.forecast import Forecast, Forecaster, seconds_left, slowdown
from ..paper.item_results import ItemResults
from ..paper.items import ALL, PAPER, Cell, Item, Scale, cells_of, find_items, find_scale
from ..paper.open_claims import OpenClaim, Step, open_claims, plan
from ..paper.results import missing
from ..paper.runner import OutOfTime, run_cell
from ..runs.events import Event, Listener, RoundLine
from ..runs.record import Record
from .terminal import AcceptChanges, Display, err, in_words, progress_bar, say, show_table
from .words import parse_seeds, parse_time

Results = Annotated[Path, typer.Option("--results", help="Where finished cells are kept.")]
KEPT = Path("results")
QUICK = "quick"


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM]…", help="Items of `rebafl paper list`, or `all`.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option("--scale", help="paper or quick; without it quick, with --open-claims paper.", show_default=False),
    ] = "",
    budget: Annotated[str, typer.Option(help="Stop after this long: 2h, 45m, 1h30m; what is done is saved.")] = "",
    only: Annotated[
        list[str] | None, typer.Option(help="Only this method, also one that is not the paper's; may be repeated.")
    ] = None,
    where: Annotated[list[str] | None, typer.Option(help="Only this condition, such as 'cifar-10 m=20'.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2.")] = "0",
    rounds: Annotated[int, typer.Option(min=0, help="Other than the scale's number of rounds.")] = 0,
    undecided: Annotated[
        bool,
        typer.Option("--open-claims", help="What decides open claims, cheapest per claim first; default: all items."),
    ] = False,
    listing: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Only list what would be run, and how long it takes, which is measured now by training briefly and "
            "moves with the machine's load.",
        ),
    ] = False,
    results: Results = KEPT,
    work: Annotated[Path, typer.Option("--work", help="Where runs are kept while they are unfinished.")] = Path(
        "runs/paper"
    ),
    accept_changes: AcceptChanges = False,
) -> None:
    """Run what is missing of some items. Killed at any time, it is resumed by the same command.

    With --open-claims: the cells that claims without a verdict need. Greedy: of these claims, the one whose missing
    cells take the least time together comes next, cells planned for others costing nothing; after each cell claims are
    judged again, and what is no longer needed is left out.

    Examples:

    * `rebafl paper run table1 --scale quick`

    * `rebafl paper run all --scale quick --budget 2h`

    * `rebafl paper run table1 --scale paper --only FedAvg --only ReBaFL --where 'cifar-10 m=20' --seeds 0,1,2`

    * `rebafl paper run --open-claims --list`, then `rebafl paper run --open-claims --budget 8h`
    """
    until = time.monotonic() + (parse_time(budget) if budget else float("inf"))
    chosen_seeds = parse_seeds(seeds)
    runs = Runs(results, work, until, accept_changes)
    if undecided:
        _check_open_claims(only, where, rounds, chosen_seeds)
        _run_open_claims(find_items(names or [ALL]), find_scale(scale or PAPER), chosen_seeds[0], listing, runs)
        return
    if not names:
        raise UserError("Which items should be run? Name some of `rebafl paper list`, or all, or give --open-claims.")
    chosen = cells_of(find_items(names), find_scale(scale or QUICK), chosen_seeds, only or (), where or ())
    chosen = [cell.with_rounds(rounds) if rounds else cell for cell in chosen]
    _run_named(chosen, listing, runs, f"rebafl paper show {names[0]} --scale {scale or QUICK}")


def _run_named(chosen: Sequence[Cell], listing: bool, runs: Runs, see: str) -> None:
    """Those of the chosen cells that are missing, in their order."""
    left = missing(chosen, runs.results)
    if not left:
        say(f"All is finished: {len({cell.key for cell in chosen})} cells in {runs.results}.")
        return
    forecasts = _forecasts(left, runs.work)
    if listing:
        show_table(("", "cell", "about"), _numbered(left, forecasts))
    say(f"{len(left)} cells to run, about {in_words(seconds_left(forecasts.values()))} at the speed just measured.")
    if not listing:
        for number, cell in enumerate(left, 1):
            runs.run(cell, number, len(left), forecasts)
        say(f"Finished: {len(left)} cells in {runs.results}. See: {see}")


def _check_open_claims(
    only: Collection[str] | None, where: Collection[str] | None, rounds: int, seeds: Sequence[int]
) -> None:
    for option, given in (("--only", only), ("--where", where), ("--rounds", rounds)):
        if given:
            raise UserError(f"--open-claims chooses the cells itself, so it does not go with {option}; leave one out.")
    if len(seeds) != 1:
        raise UserError("--open-claims runs each cell with one seed; give one, such as --seeds 0.")


def _run_open_claims(items: Sequence[Item], scale: Scale, seed: int, listing: bool, runs: Runs) -> None:
    """Plan, say what is planned, and run it, planning again after every cell."""

    def judged() -> list[OpenClaim]:
        return open_claims([ItemResults(item, scale, runs.results) for item in items], seed)

    claims = judged()
    if not claims:
        say(f"No claim of these items is open at scale {scale.name}; all of them: rebafl paper report.")
        return
    forecasts = _forecasts(
        list({key: cell for claim in claims for key, cell in claim.needs.items()}.values()), runs.work
    )

    def seconds(cell: Cell) -> float:
        return forecasts[cell.key].seconds_left(slowdown(forecasts.values()))

    steps, done = plan(claims, seconds), set[str]()
    _show_plan(claims, steps, forecasts)
    while steps and not listing:
        runs.run(steps[0].cell, len(done) + 1, len(done) + len(steps), forecasts)
        done.add(steps[0].cell.key)
        still = {claim.name: claim for claim in judged()}
        for claim in claims:
            if claim.name not in still:
                say(f"Decided: {claim.name}, {claim.claim.text}")
        claims = [still[claim.name] for claim in claims if claim.name in still]
        steps = plan(claims, seconds)
        for key in forecasts.keys() - done - {step.cell.key for step in steps}:
            del forecasts[key]  # what claims were decided without is no time that is left
    if not listing:
        say(f"Finished: {len(done)} cells, kept in {runs.results}. See: rebafl paper report")


def _show_plan(claims: Sequence[OpenClaim], steps: Sequence[Step], forecasts: Mapping[str, Forecast]) -> None:
    """Which claims are decided after how long, and which cells are run for which of them."""
    rows = _numbered([step.cell for step in steps], forecasts)
    serves = [", ".join(claim.name for claim in step.claims) for step in steps]
    ends, total = dict[str, float](), 0.0
    for step in steps:
        total += forecasts[step.cell.key].seconds_left(slowdown(forecasts.values()))
        ends |= {claim.name: total for claim in step.claims}  # the last of its cells
    ordered = sorted(claims, key=lambda claim: ends[claim.name])
    show_table(
        ("claim", "what it says", "cells it needs", "decided after about"),
        [(claim.name, claim.claim.text, str(len(claim.needs)), in_words(ends[claim.name])) for claim in ordered],
    )
    show_table(("", "cell", "about", "serves"), [(*row, of) for row, of in zip(rows, serves, strict=True)])
    say(f"{len(steps)} cells for {len(claims)} open claims, about {in_words(total)} at the speed just measured.")


def _numbered(left: Sequence[Cell], forecasts: Mapping[str, Forecast]) -> list[Sequence[str]]:
    ratio = slowdown(forecasts.values())
    return [
        (str(number), _named(cell), in_words(forecasts[cell.key].seconds_left(ratio)))
        for number, cell in enumerate(left, 1)
    ]


def _named(cell: Cell) -> str:
    return f"{cell.method}, {cell.condition}, seed {cell.settings.seed}"


def _forecasts(left: Sequence[Cell], work: Path) -> dict[str, Forecast]:
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


@dataclass(frozen=True)
class Runs:
    """Where cells are run and kept, and until when."""

    results: Path
    work: Path
    until: float
    accept_changes: bool

    def run(self, cell: Cell, number: int, of: int, forecasts: Mapping[str, Forecast]) -> None:
        """Run a cell, saying before how long it and all that are left will take, by the rounds finished so far."""
        forecast, all_forecasts = forecasts[cell.key], forecasts.values()
        say(
            f"[{number}/{of}] {_named(cell)}: about {in_words(forecast.seconds_left(slowdown(all_forecasts)))}, "
            f"all that is left {in_words(seconds_left(all_forecasts))}"
        )
        try:
            with Display(cell.settings, self.work / cell.key, silent=False) as display:
                listen = _correcting(display, forecast, all_forecasts)
                run_cell(cell, self.results, self.work, self.until, listen, display.say, self.accept_changes)
        except OutOfTime:
            say(f"Time is up after {number - 1} of {of} cells. Resume with the same command.")
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
