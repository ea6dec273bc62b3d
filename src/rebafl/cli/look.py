"""`rebafl ui` and `report`: look at runs, live in a browser, or in one file that can be mailed."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError, exists
from ..base.files import write_text
from ..ui.report_file import report as make_report
from ..ui.server import serve
from .terminal import out, say


def ui(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUNS]…", help="Runs, or folders of runs.")] = None,
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
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
) -> None:
    """Write the views of some runs into one file that opens anywhere, without a network: at most 2 MB.

    Example: `rebafl report runs/fedavg runs/rebafl -o report.html`
    """
    text = make_report(runs)
    write_text(to, text)
    say(f"Written: {to} ({len(text.encode()) / 1e6:.2f} MB)")
