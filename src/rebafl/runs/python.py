"""How does Python run an experiment? `rebafl.simulate`: settings in any form, and progress where somebody looks.

Commands use `runs.simulate` and show progress in their own way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ..base.errors import UserError
from ..base.words import Say
from ..data import Data
from ..models.choice import Factory
from .events import ClientsTrained, Event, Listener, RoundLine, RunStarted, nobody
from .finished import Run
from .settings import Settings, make_settings, resumed_settings
from .simulate import need_trained
from .simulate import simulate as run_rounds
from .tally import why_unchanged


def simulate(
    settings: Settings | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data: Data | None = None,
    model: Factory | str | Mapping[str, Any] | None = None,
    listen: Listener = nobody,
    say: Say = print,
    accept_changes: bool = False,
    fresh: bool = False,
    progress: bool | None = None,
    **more: Any,
) -> Run:
    """Run, or resume, the experiment in directory `out`, up to `rounds` rounds or until `rebafl stop`.

    `settings` may be nested, `{"algorithm": {"kind": "rebafl", "mu": 0.5}}`, dotted, `{"algorithm.mu": 0.5}`, or given
    as keywords, `rounds=20`; keywords win. `out` is `runs/` and a name made of the settings if it is not given.

    `data` (see `rebafl.from_torch`) and `model` (a callable that makes one) take the place of what `settings` name. A
    run whose own code was edited since is resumed only if `accept_changes` says so; with `fresh` nothing is resumed,
    and a run that the directory holds is moved aside.

    `listen` is called with `RunStarted` once, with `ClientsTrained` after each client, and with the `RoundLine` of each
    round once it is saved; an exception that it raises ends the run, and finished rounds stay. `progress` shows a line
    that is counted up: by default on terminals and in notebooks.
    """
    if isinstance(model, str | Mapping):
        more, model = {**more, "model": model}, None
    layers: list[Mapping[str, Any]] = []
    if isinstance(settings, Settings):
        if more:
            raise UserError(f"Give either rebafl.Settings or keywords such as {min(more)}, not both.")
        wanted = settings
    else:
        layers = [settings or {}, more]
        wanted = make_settings(*layers)
    named = replace(wanted, dataset=data.name) if data else wanted
    run = Run(out or Path("runs") / named.label, model, trusted=True)
    chosen = resumed_settings(run.config(), *layers) if layers and run.begun and not fresh else wanted
    looked_at = _is_looked_at(sys.stderr) if progress is None else progress
    shown = Counted(chosen, listen) if looked_at else None
    try:
        run_rounds(chosen, run, data, model, shown or listen, say, accept_changes, fresh)
    finally:
        if shown:
            shown.end()
    need_trained(run, chosen)
    return run


class Counted:
    """A listener that counts rounds up in one line, with the time that is left, and passes everything on."""

    def __init__(self, settings: Settings, listen: Listener = nobody, to: TextIO | None = None) -> None:
        self.settings, self.listen = settings, listen
        self.to = to or (sys.stdout if _in_notebook() else sys.stderr)  # a notebook shows errors in red
        self.first = self.round = 0
        self.facts, self.width = "", 0
        self.began = self.written = time.monotonic()

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.first = self.round = event.round
                for warning in event.warnings:
                    self._line(f"Warning: {warning}")
            case ClientsTrained():
                if time.monotonic() - self.written > 0.2 or event.done == event.of:
                    self._write(f", client {event.done}/{event.of}")
            case RoundLine():
                self.round, self.facts = event.round, f"  accuracy {event.accuracy:.2f}"
                if event.refused or not event.updated:
                    self._line(f"Round {event.round}: {_trouble(event)}.")
                self._write()
        self.listen(event)

    def _write(self, more: str = "") -> None:
        done, all_rounds = self.round - self.first, self.settings.rounds
        left = (time.monotonic() - self.began) / done * (all_rounds - self.round) if done else 0.0
        time_left = f", {left:.0f} s left" if done and left >= 1 else ""
        text = f"{self.settings.algorithm.name}  round {self.round}/{all_rounds}{self.facts}{more}{time_left}"
        self.to.write(f"\r{text:<{self.width}}")
        self.to.flush()
        self.width, self.written = len(text), time.monotonic()

    def _line(self, text: str) -> None:
        self.to.write(f"\r{text:<{self.width}}\n")

    def end(self) -> None:
        """Leave the last line as it is."""
        if self.width:
            self.to.write("\n")
            self.to.flush()


def _trouble(line: RoundLine) -> str:
    if not line.updated:
        return f"{why_unchanged(line)}; the model is unchanged"
    client, reason = next(iter(line.refused.items()))
    count = "1 upload was" if len(line.refused) == 1 else f"{len(line.refused)} uploads were"
    return f"{count} refused, client {client}'s as {reason}"


def _is_looked_at(stream: TextIO) -> bool:
    return _in_notebook() or stream.isatty()


def _in_notebook() -> bool:
    """Is this a Jupyter kernel? It has a shell of this name, and IPython is imported already."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return type(get_shell() if get_shell else None).__name__ == "ZMQInteractiveShell"
