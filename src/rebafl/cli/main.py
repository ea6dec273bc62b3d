"""`rebafl`: all commands in one program, and how it ends: finished, with an error in one sentence, or by Ctrl-C."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from click import Command, Context, UsageError
from rich.text import Text
from typer.core import TyperGroup

from ..base import interrupts
from ..base.errors import UserError
from ..base.version import VERSION
from ..base.words import debugging
from . import (
    advise,
    bench,
    compare,
    completion,
    data,
    demo,
    device,
    federation_changes,
    listing,
    look,
    models,
    paper,
    privacy,
    runs,
    settings,
    verify,
)
from .terminal import HELP, err, say


class Commands(TyperGroup):
    """All commands. Interrupted, Typer itself would end with no message, or with another exit code."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Newer versions of Click suggest another command, and so does Typer: once is enough."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            if "Did you mean" in error.message and hasattr(error, "possibilities"):
                setattr(error, "possibilities", None)
            raise

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("Stopped.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Train one good classifier across devices that hold few classes each and keep dropping out.\n\n"
    "Example: `rebafl run dataset=fashion-mini algorithm=rebafl partition.samples=300 rounds=20 out=runs/a`",
)
for command in (
    runs.run,
    runs.sweep,
    runs.stop,
    runs.rollback,
    demo.demo,
    listing.runs,
    listing.tag,
    compare.compare,
    look.ui,
    look.report,
    look.log,
    verify.verify,
    models.export,
    models.predict,
    settings.settings,
    settings.algorithms,
    advise.advise,
    data.partition,
    data.datasets,
    bench.bench,
    device.device_check,
    completion.completion,
):
    app.command()(command)
for name, group in {
    "data": data.app,
    "paper": paper.app,
    "federation": federation_changes.app,
    "privacy": privacy.app,
}.items():
    app.add_typer(group, name=name, cls=Commands)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"rebafl {VERSION}")
        raise typer.Exit


def main(run_app: Callable[[], Any] = app) -> None:
    """The entry point: a user's mistake is one sentence and exit code 2, Ctrl-C one word and 130."""
    try:
        interrupts.as_usual()
        run_app()
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(130)
    except (UserError, OSError) as error:  # OSError: a closed pipe, a full disk under standard output
        if debugging():
            err.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
        err.print(Text.assemble(("Error: ", "red"), str(error)), soft_wrap=True, highlight=False)
        sys.exit(2)
    finally:
        interrupts.ends_at_once()
        interrupts.forgotten()
