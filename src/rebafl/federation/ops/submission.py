"""Which run does the server compute? The one that was requested last, submitted again whenever the server starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from ...base.config import Plain, read_toml
from ...base.errors import UserError, exists
from ...base.files import is_locked, write_whole
from ...base.version import VERSION
from ...runs.record import rounds_done
from ..app.member_keys import MEMBERS
from .processes import wait_until

APP, SUBMITTED = "app", "submitted.json"
LINK = "here"
HANDOVER = 120.0  # seconds that the server app of a killed SuperLink may take to end
COMPONENTS = {"serverapp": "rebafl.federation.app.server_app:app", "clientapp": "rebafl.federation.app.client_app:app"}


def request_run(server: Path, config: Plain, out: Path, components: Mapping[str, str] = COMPONENTS) -> None:
    """Store what is to be run: a Flower app with this run config, whose run directory is `out`."""
    config = {**config, "out": str(out.resolve()), "members": str((server / MEMBERS).resolve())}
    project = {"name": "rebafl-federation", "version": VERSION, "description": "A run of rebafl", "license": "MIT"}
    app = {"publisher": "rebafl", "components": dict(components), "config": config}
    (server / APP).mkdir(exist_ok=True)
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    write_whole(server / APP / "pyproject.toml", text.encode())


def submit_requested(server: Path, port: int) -> None:
    """Submit the requested run, unless there is none or it is finished. Errors are left in `submitted.json`."""
    config = requested_run(server)
    if config is None:
        return
    out, rounds = Path(config["out"]), int(config["rounds"])
    if rounds_done(out) >= rounds:
        return
    # The server app of a killed SuperLink ends only some seconds later; until then it holds the directory.
    if not wait_until(lambda: not is_locked(out), HANDOVER):
        give_up(server, f"{out} is still being written by another process")
        return
    answer = flwr(server, port, "run", str(server / APP), LINK)
    run = answer.get("run-id")
    _write_submission(server, {"run": run} if run else {"error": _reason(answer)})


def requested_run(server: Path) -> Plain | None:
    """The run config of the run that was requested last."""
    path = server / APP / "pyproject.toml"
    if not exists(path):
        return None
    config: Plain = read_toml(path)["tool"]["flwr"]["app"]["config"]
    return config


def read_submission(server: Path) -> Plain:
    """Flower's number of the submitted run, or the error; empty if none was submitted yet."""
    try:
        submission: Plain = json.loads((server / SUBMITTED).read_text(encoding="utf-8"))
        return submission
    except (OSError, ValueError):
        return {}


@dataclass(frozen=True)
class RunEnd:
    """A submitted run is over; `problem` says what went wrong, and is empty if it was completed."""

    problem: str = ""


def run_end(server: Path, port: int) -> RunEnd | None:
    """How the submitted run ended, by Flower's account; None while it continues, or if none was submitted."""
    submission = read_submission(server)
    if "error" in submission:
        return RunEnd(str(submission["error"]))
    if (run := submission.get("run")) is None:
        return None
    listed = flwr(server, port, "list", LINK, "--run-id", str(run)).get("runs") or [{}]
    status = str(listed[0].get("status", ""))
    if not status.startswith("finished"):
        return None
    return RunEnd("" if status == "finished:completed" else _last_error(server, port, str(run)) or status)


def _last_error(server: Path, port: int, run: str) -> str:
    """What the server app logged last before it ended; Flower keeps it in the run's log only."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", _call(server, port, "log", run, LINK, "--show").stdout)
    errors = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("ERROR")]
    return next((line for line in errors if line), "")


def flwr(server: Path, port: int, *words: str) -> dict[str, Any]:
    """Flower's own command, on this machine's SuperLink, in its JSON form."""
    done = _call(server, port, *words, "--format", "json")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    except ValueError:
        return {"error-message": (done.stderr or done.stdout).strip()}


def _call(server: Path, port: int, *words: str) -> subprocess.CompletedProcess[str]:
    home = server / "flwr"
    home.mkdir(exist_ok=True)
    link = {"address": f"127.0.0.1:{port}", "root-certificates": str((server / "ca.crt").resolve())}
    write_whole(home / "config.toml", tomli_w.dumps({"superlink": {"default": LINK, LINK: link}}).encode())
    command = [sys.executable, "-m", "rebafl.federation.command", str(server.resolve()), *words]
    return subprocess.run(command, env=isolated_environment(home), capture_output=True, text=True, check=False)


def isolated_environment(home: Path) -> dict[str, str]:
    """This process's environment for Flower's programs: files of their own, no telemetry, no proxy in between."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }


def _reason(answer: Mapping[str, Any]) -> str:
    lines = str(answer.get("error-message") or "Flower did not say why").splitlines()
    return lines[-1] if lines else ""


def forget_submission(server: Path) -> None:
    """Nothing is submitted now."""
    (server / SUBMITTED).unlink(missing_ok=True)


def give_up(server: Path, reason: str) -> None:
    """The requested run is not submitted again; `reason` is what users are told."""
    _write_submission(server, {"error": reason})


def finished_rounds(server: Path) -> int:
    """Of the requested run."""
    config = requested_run(server)
    return 0 if config is None else rounds_done(Path(config["out"]))


def _write_submission(server: Path, values: Plain) -> None:
    write_whole(server / SUBMITTED, json.dumps(values).encode())


def need_submitted(server: Path, seconds: float) -> None:
    """Wait until the run was submitted to Flower; raise with the reason if it was not."""
    wait_until(lambda: read_submission(server), seconds)
    submission = read_submission(server)
    if "run" not in submission:
        raise UserError(
            f"Flower did not accept the run ({submission.get('error', 'no answer')}); see {server / 'log'}."
        )
