"""How does the page start, stop and resume runs? As processes of their own, which outlive the page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.config import Plain
from ..base.errors import UserError, exists
from ..base.files import is_locked
from ..federation.ops.layout import DESCRIPTION
from ..runs.record import Record
from ..runs.stopping import request_stop
from .form import checked_words, refuse_own_code

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LOGS = ".ui-logs"  # below the folder of runs: what started runs say


@dataclass
class Job:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    log: Path

    def plain(self) -> Plain:
        code = self.process.poll()
        return {"state": "running" if code is None else "ended" if code == 0 else "failed", "says": self.last_words()}

    def last_words(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][:500] if lines else ""


class Control:
    """Starts runs below one folder; `own_code` says whether settings may name code to be imported."""

    def __init__(self, home: Path, own_code: bool) -> None:
        self.home, self.own_code = home, own_code
        self.jobs: dict[str, Job] = {}

    def start(self, words: Mapping[str, Any], name: str) -> str:
        """Start a new run, in a new folder; its name."""
        assigned, settings = checked_words(words, self.own_code)
        name = name or settings.label
        if not NAME.fullmatch(name):
            raise UserError(f"{name!r} cannot be a run's name; use letters, digits, dots, hyphens and underscores.")
        if exists(self.home / name):
            raise UserError(f"There is a run {name} already; choose another name.")
        self._launch(name, ["run", *assigned, f"out={self.home / name}"])
        return name

    def stop(self, path: Path) -> None:
        request_stop(path)

    def resume(self, name: str, path: Path) -> None:
        """Resume a run where it stopped."""
        if is_locked(path):
            raise UserError(f"{name} is running already.")
        if not self.own_code:
            refuse_own_code(Record(path).config())
        if exists(path.parent / DESCRIPTION):
            self._launch(name, ["federation", "resume", "--dir", str(path.parent)])
        else:
            self._launch(name, ["run", f"out={path}"])

    def _launch(self, name: str, words: list[str]) -> None:
        logs = self.home / LOGS
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{name.replace('/', '--')}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "rebafl", *words],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.jobs[name] = Job(process, log)

    def plain(self) -> dict[str, Plain]:
        """What became of everything that was started here."""
        return {name: job.plain() for name, job in self.jobs.items()}
