"""`rebafl run`, `sweep`, `stop` and `rollback`: train, resume, stop between rounds, and go back to an earlier one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError
from ..data import check_name
from ..report.comparison import comparison_json, comparison_table, further_tables
from ..report.summary import group_runs, read_run
from ..runs.events import RoundLine
from ..runs.measures import best_round
from ..runs.opening import roll_back, set_all_aside
from ..runs.record import Record, open_run, rounds_done, validation_of
from ..runs.simulate import OWN_MODEL, NothingLearned
from ..runs.stopping import request_stop, stopped_after
from ..runs.sweep import GridPoint, check_code, grid, run_at_once, run_on_ray
from .terminal import (
    AcceptChanges,
    AsJson,
    Debug,
    Fresh,
    Quiet,
    RunDir,
    RunDirs,
    err,
    out,
    progress_bar,
    run_shown,
    say,
    show,
)
from .words import Words, need_settings_or_a_run, read_words, split_words


def run(
    words: Words = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    accept_changes: AcceptChanges = False,
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Run an experiment, or resume one.

    With an existing directory as `out`, training resumes where it stopped, to the bit. All settings have
    defaults: those of the paper. `rebafl settings` lists them.

    Examples:

    * `rebafl run dataset=fashion-mini partition.samples=300 rounds=20 out=runs/a`

    * `rebafl run dataset=fashion-mnist partition.clients=20 participation.p=0.5 algorithm=fedavg rounds=50`

    * `rebafl run runs/a/config.toml seed=1`  (the same with another seed)

    * `rebafl run out=runs/a`  (resume)

    * `rebafl run out=runs/a --changed-code`  (resume although own code, algorithm=module:Class, was edited)

    * `rebafl run out=runs/a --fresh`  (start it anew; what was there is moved aside)

    * `rebafl run dropout=lost delivery=markov delivery.leave=0.1`  (uploads get lost)
    """
    need_settings_or_a_run(words or [])
    settings, target = read_words(words or [])
    silent = quiet or as_json
    if settings.model.kind == OWN_MODEL:
        raise UserError(f"{target} was run from Python; resume it with rebafl.simulate(…, out={str(target)!r}) there.")
    before = 0 if fresh else rounds_done(target)
    record = run_shown(settings, target, silent, f"rebafl run out={target}", accept_changes, fresh)
    if before >= settings.rounds and not silent:
        say(f"It was finished already: {before} rounds. rounds={before + 50} would go further.")
    _report_run(record, silent, as_json)


def sweep(
    words: Words = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    accept_changes: AcceptChanges = False,
    at_once: Annotated[
        int, typer.Option("--at-once", min=0, help="Runs at a time, each on one core; 0: one per core.")
    ] = 1,
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Run every combination of several values and compare them.

    Killed or stopped, it is resumed by the same command; finished runs are not run again. Seeds become mean ± std.
    With `engine=ray`, runs are spread over a Ray cluster (`RAY_ADDRESS`, or one started here).

    Examples:

    * `rebafl sweep dataset=fashion-mini partition.samples=300 algorithm=fedavg,rebafl seed=0..4 out=runs/s`

    * `rebafl sweep 'algorithm=fedavg,rebafl[mu=0.1,0.5]' seed=0..4 --at-once 0`  (mu for rebafl only; all cores)
    """
    base, rest, target = split_words(words or [])
    if not base and not rest:
        where = target or "runs/sweep"
        raise UserError(
            f"A sweep needs settings to combine, such as algorithm=fedavg,rebafl seed=0..4; what is in {where} is "
            f"resumed by the words that started it, and shown by: rebafl compare {where}"
        )
    folder = target or Path("runs/sweep")
    cells = grid(base, rest, folder)
    for cell in cells:
        check_name(cell.settings.dataset)
    if fresh and (aside := set_all_aside(folder)):
        say(f"What {folder} held is now in {aside}.")
    if not accept_changes:
        check_code(cells)
    again = f"rebafl sweep {shlex.join(words or [])}" + (f" --at-once {at_once}" if at_once != 1 else "")
    untrained: list[str] = []
    if {cell.settings.engine for cell in cells} == {"ray"}:
        ray = partial(run_on_ray, workers=cells[0].settings.workers, accept_changes=accept_changes)
        _sweep_together(cells, ray, "on Ray", quiet or as_json, again)
    elif at_once != 1:
        quiet_say = (lambda text: None) if quiet or as_json or err.is_terminal else say
        here = partial(run_at_once, processes=at_once, say=quiet_say, accept_changes=accept_changes)
        _sweep_together(cells, here, "at once", quiet or as_json, again)
    else:
        untrained = _sweep_here(cells, quiet or as_json, again, accept_changes)
    groups = group_runs([read_run(cell.out) for cell in cells])
    if as_json:
        print(json.dumps(comparison_json(groups)))
    elif not quiet:
        from ..report import figures  # matplotlib is slow to import, and most commands draw nothing

        figures.draw_curves(groups, folder / "curves.png")
        for table in (comparison_table(groups), *further_tables(groups, None, "last10")):
            show(table)
        out.print(Text(f"Runs in {folder}, curves drawn in {folder / 'curves.png'}"), soft_wrap=True)
    if untrained:
        raise UserError(f"{len(untrained)} of {len(cells)} runs trained nothing, the first being {untrained[0]}")


def _sweep_here(cells: list[GridPoint], silent: bool, again: str, accept_changes: bool) -> list[str]:
    """Run all; those that trained nothing do not stop the others, and are handed back."""
    untrained = []
    for number, cell in enumerate(cells, 1):
        if not silent:
            say(f"[{number}/{len(cells)}] {cell.label}")
        try:
            run_shown(cell.settings, cell.out, silent, again, accept_changes)
        except NothingLearned as error:
            untrained.append(f"{cell.label}: {error}")
    return untrained


def _sweep_together(cells: list[GridPoint], run_all: Callable[..., None], where: str, silent: bool, again: str) -> None:
    """Several runs at a time, under one progress bar."""
    progress = progress_bar(disable=silent or not err.is_terminal)
    total = sum(cell.settings.rounds for cell in cells)
    bar = progress.add_task(f"{len(cells)} runs {where}", total=total, facts="rounds")

    def listen(done: int) -> None:
        progress.start()  # its thread must not be there when processes are forked
        progress.update(bar, completed=done)

    try:
        run_all(cells, listen=listen)
    except KeyboardInterrupt:
        progress.stop()
        say(f"\nStopped; finished rounds are saved. Resume with: {again}")
        raise typer.Exit(130) from None
    finally:
        progress.stop()
    if stopped := sum(stopped_after(cell.out) is not None for cell in cells):
        say(f"Stopped on request: {stopped} of {len(cells)} runs are not finished. Resume with: {again}")
        raise typer.Exit


def _report_run(record: Record, silent: bool, as_json: bool) -> None:
    finished = read_run(record.path)
    if finished.tally.warning and silent:  # the table says it, too
        say(f"Warning: {record.path}: {finished.tally.warning}{_first_refusal(finished.rounds)}")
    if as_json:
        print(json.dumps({"out": str(record.path), **finished.summary()}))
    elif not silent:
        groups = group_runs([finished])
        for table in (comparison_table(groups), *further_tables(groups, None, "last10")):
            show(table)
        if validation := validation_of(lines := record.rounds()):
            best = lines[best_round(validation) - 1]
            out.print(
                f"Best on the validation part: round {best.round}, with {best.accuracy:.2f} % on the test set; "
                f"rebafl export --best writes that model."
            )
        out.print(Text(f"Saved in {record.path}; see also: rebafl compare {record.path}"), soft_wrap=True)


def _first_refusal(rounds: Sequence[RoundLine]) -> str:
    for line in rounds:
        for client, reason in line.refused.items():
            return f" The first: client {client} in round {line.round}, {reason}."
    return ""


def stop(runs: RunDirs) -> None:
    """Ask running runs to stop after the round they are in; nothing is lost, and each can be resumed.

    A run that was stopped has the record of one that was not, up to that round. A federation's nodes stay connected.

    Example: `rebafl stop runs/a`, and later `rebafl run out=runs/a`
    """
    for path in runs:
        request_stop(path)
        say(f"{path} will stop after the round it is in.")


def rollback(
    run: RunDir,
    to: Annotated[int | None, typer.Option("--to", min=1, help="The round to go back to; none: list them.")] = None,
) -> None:
    """Take a run back to an earlier round, such as one before a client poisoned the model; later rounds are removed.

    Some earlier rounds are kept, closer together the nearer they are; of runs whose clients' states are in the run
    directory only the last. The federation must be down.

    Examples:

    * `rebafl rollback federation/run`  (to which rounds it can go back)

    * `rebafl rollback federation/run --to 16`, then resume with the command that started the run
    """
    record = open_run(run)
    with record.locked():
        if to is None:
            points = ", ".join(map(str, record.points())) or "none"
            out.print(Text(f"{run} is at round {rounds_done(run)}; it can go back to round: {points}"), soft_wrap=True)
            return
        before = rounds_done(run)
        roll_back(record, to)
    say(f"{run} is at round {to} again; it was at round {before}. Resume it with the command that started it.")
