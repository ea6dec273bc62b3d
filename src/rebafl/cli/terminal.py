"""What does a person at a terminal see? Progress, tables and messages; shared by all commands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from ..base.errors import UserError
from ..base.words import DEBUG, printable
from ..runs.events import ClientsTrained, Event, RoundLine, RunStarted
from ..runs.measures import best_round
from ..runs.record import Record, rounds_done
from ..runs.settings import Settings
from ..runs.simulate import need_trained, simulate
from ..runs.stopping import plateau_after
from ..runs.tally import why_unchanged


class PlainConsole(Console):
    """A console on which no text can act, whoever wrote it: a node's message, a file's content, a class name."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out, err = PlainConsole(), PlainConsole(stderr=True)
HELP = {"help_option_names": ["-h", "--help"]}
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on standard output, nothing else.")]
Png = Annotated[Path | None, typer.Option("--png", help="Where to draw it.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]


def given_path(word: str | Path) -> Path:
    """`Path("")` would be the current folder, which nobody means by a shell variable that is not set."""
    if word == "":
        raise UserError("A path is empty, as where a variable of the shell is not set; give it, or . for this folder.")
    return Path(word)


RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", parser=given_path)]
RunDirs = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.", parser=given_path)]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import the own code (module:Class) that the folder names: it is run.")
]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        "--changed-code", "--accept-changes", help="Resume although own code was edited, or on another kind of bits."
    ),
]


def _debug(wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG] = "1"  # workers inherit it


Debug = Annotated[
    bool, typer.Option("--debug", callback=_debug, help="Show whole tracebacks of failures, those of clients too.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start anew: a run that OUT holds is moved aside, to OUT-before-1 and so on.")
]


def say(text: str) -> None:
    err.print(Text(text), soft_wrap=True)


def show(table: Table) -> None:
    """Print a table whole: for a pipe as wide as it is; in a window that is narrower, folded or row by row."""
    if not out.is_terminal:
        needed = Measurement.get(out, out.options.update(max_width=1000), table)
        PlainConsole(width=max(out.width, needed.maximum)).print(table)
    elif sum(map(_narrowest, table.columns)) + 1 <= out.width:
        out.print(table)
    else:
        _show_rows(table)


def _narrowest(column: Column) -> int:
    """The letters that a column needs so that nothing in it is cut, with what is between two columns."""
    texts = [str(column.header), *(_text(cell).plain for cell in column.cells)]
    pieces = [piece for text in texts for piece in (text.splitlines() if column.no_wrap else text.split())]
    widest = max(map(cell_len, pieces), default=0)
    return max(column.min_width or 0, widest) + 3


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _show_rows(table: Table) -> None:
    """A table that is too wide for the window: the first cell of each row, and below it the others with their names."""
    if table.title:
        out.print(_text(table.title), style="italic")
    names = [" ".join(str(column.header).split()) for column in table.columns]
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        first, *others = map(_text, cells)
        out.print(Text("\n") + first, style="bold")
        facts = [f"{name} {cell.plain}" for name, cell in zip(names[1:], others, strict=True) if cell.plain]
        out.print(Padding(Columns([Text(fact) for fact in facts], padding=(0, 3)), (0, 0, 0, 2)))
    if table.caption:
        out.print(_text(table.caption), style="dim")


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table of texts, each as it is."""
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    show(table)


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def progress_bar(disable: bool) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=disable,
        speed_estimate_period=600,  # a round may take longer than rich's own 30 seconds
    )


class Display:
    """A live progress bar on a terminal; elsewhere one line per round, so that logs show the progress."""

    def __init__(self, settings: Settings, target: Path, silent: bool) -> None:
        self.settings, self.target, self.silent = settings, target, silent
        self.live = err.is_terminal and not silent
        self.progress = progress_bar(disable=not self.live)
        self.job = self.progress.add_task(settings.algorithm.name, total=settings.rounds, facts="", start=False)
        self.accuracy = ""
        self.note = ""  # shown beside the bar

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, text: str, style: str = "") -> None:
        if not self.silent:
            err.print(Text(text, style), soft_wrap=True)

    def listen(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._start(event)
            case ClientsTrained():
                self._show(f"client {event.done}/{event.of}")
            case RoundLine():
                self._round(event)

    def _show(self, *facts: str) -> None:
        words = ", ".join([*facts, *([self.note] if self.note else [])])
        self.progress.update(self.job, facts=f"{self.accuracy} [dim]{words}".strip())

    def _start(self, event: RunStarted) -> None:
        for warning in event.warnings:
            self.say(f"Warning: {warning}", "yellow")
        self.say(f"{self.settings.algorithm.name} on {self.settings.dataset} -> {self.target}")
        if event.round:
            self.say(f"Resumed after round {event.round}.")
        self.progress.update(self.job, total=self.settings.rounds, completed=event.round)
        self.progress.start_task(self.job)
        if self.live:
            self.progress.start()

    def _round(self, line: RoundLine) -> None:
        for client, reason in line.missing.items():
            self.say(f"Round {line.round}: client {client} did not answer: {reason}", "yellow")
        for client, reason in line.refused.items():
            self.say(f"Round {line.round}: client {client} was refused: {reason}", "yellow")
        if not line.updated:
            self.say(f"Round {line.round}: {why_unchanged(line)}; the model is unchanged.", "yellow")
        self.accuracy = f"accuracy {line.accuracy:5.2f}"
        self.progress.update(self.job, completed=line.round)
        self._show()
        if not self.live:
            self.say(f"round {line.round}/{self.settings.rounds}  {self.accuracy}  {line.seconds} s")


def run_shown(
    settings: Settings, target: Path, silent: bool, again: str, accept_changes: bool = False, fresh: bool = False
) -> Record:
    """Run with a display; Ctrl-C, or `rebafl stop` from elsewhere, says how to resume."""
    try:
        with Display(settings, target, silent) as display:
            record = simulate(
                settings, target, listen=display.listen, say=display.say, accept_changes=accept_changes, fresh=fresh
            )
    except KeyboardInterrupt:
        say(f"\nStopped. Rounds finished and saved: {rounds_done(target)} of {settings.rounds}. Resume with: {again}")
        raise typer.Exit(130) from None
    need_trained(record, settings)
    if plateau_after(target) is not None:
        if not silent:
            say(f"{_plateau(record, settings)} To train further: stop=never.")
        return record
    if record.round < settings.rounds:
        say(f"Stopped on request after round {record.round} of {settings.rounds}. Resume with: {again}")
        raise typer.Exit
    return record


def _plateau(record: Record, settings: Settings) -> str:
    since = f"since round {best_round(record.validation)}" if record.validation else "for long"
    return (
        f"Ended at a plateau after round {record.round} of {settings.rounds}: no better accuracy on the validation "
        f"part {since}."
    )
