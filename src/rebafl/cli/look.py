"""`rebafl ui`, `report` and `log`: look at runs in a browser, in one file to be mailed, or where one looks already."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError, exists
from ..base.files import write_text
from ..runs.loggers import log_run, need_loggers
from ..runs.record import open_run
from ..runs.settings import LOGGERS, known_loggers
from ..ui.report_file import report as make_report
from ..ui.server import serve
from .terminal import RunDir, RunDirs, given_path, out, say


def ui(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUNS]…", help="Runs, or folders of runs.", parser=given_path),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    own_code: Annotated[
        bool, typer.Option("--own-code", help="The form may name own code, module:Class, which is then run.")
    ] = False,
) -> None:
    """Serve a page on 127.0.0.1 that shows runs while they train, and starts, stops and resumes them.

    The address that is printed works once, in one browser; nobody else on the machine or the network sees the page.
    Runs that were started there continue when the page is ended.

    Examples:

    * `rebafl ui`  (all runs below runs/)

    * `rebafl ui runs/s federation/run --open`
    """
    places = runs or [Path("runs")]
    for place in places:
        if runs and not exists(place):
            raise UserError(f"There is no folder {place}; give a run, or a folder of runs.")

    def ready(address: str) -> None:
        out.print(Text(f"{address}\nThe address works once. Ctrl-C ends the page, and no run."), soft_wrap=True)
        if open_browser:
            webbrowser.open(address)

    serve(places, port, own_code, ready)


def report(
    runs: RunDirs,
    to: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
) -> None:
    """Write the views of some runs into one file that opens anywhere, without a network: at most 2 MB.

    Example: `rebafl report runs/fedavg runs/rebafl -o report.html`
    """
    text = make_report(runs)
    write_text(to, text)
    say(f"Written: {to} ({len(text.encode()) / 1e6:.2f} MB)")


def log(
    run: RunDir,
    to: Annotated[
        str, typer.Option("--to", help="tensorboard, mlflow, wandb, with commas; none: as the run says.")
    ] = "",
) -> None:
    """Write a run's rounds to TensorBoard, MLflow or Weights & Biases; those that stand there already are left alone.

    During a run the setting `log=` does the same. TensorBoard's file is in RUN/logs/tensorboard, MLflow's store is
    mlflow.db beside the run (or what MLFLOW_TRACKING_URI names), W&B's offline runs are in RUN/logs/wandb.

    Example: `rebafl log runs/a --to tensorboard,mlflow`
    """
    record = open_run(run)
    names = to or str(record.config().get("log", ""))
    try:
        known_loggers(names)
    except ValueError as error:
        raise UserError(f"--to {names}: {error}.") from None
    if not names:
        raise UserError(f"{run} has no log= in its settings; say --to {','.join(LOGGERS)}, or one of them.")
    need_loggers(names)
    say(f"Rounds written: {log_run(record, names)}")
