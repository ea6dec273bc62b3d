"""What is the federation to compute? The run that was asked for last, submitted again whenever the server starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from ...base.config import Plain, read_toml
from ...base.errors import UserError, exists
from ...base.files import is_locked, write_whole
from ...base.version import VERSION
from ...runs.record import Record
from .layout import ALLOWED
from .processes import wait_until

APP, SUBMITTED = "app", "submitted.json"
LINK = "here"
PATIENCE = 120.0  # seconds that the server of a killed SuperLink may take to end
COMPONENTS = {"serverapp": "rebafl.federation.app.server_app:app", "clientapp": "rebafl.federation.app.client_app:app"}


def ask_for(server: Path, config: Plain, out: Path, components: Mapping[str, str] = COMPONENTS) -> None:
    """Write down what is to be run: a Flower app with this run config, whose rounds are kept in `out`."""
    config = {**config, "out": str(out.resolve()), "members": str((server / ALLOWED).resolve())}
    project = {"name": "rebafl-federation", "version": VERSION, "description": "A run of rebafl", "license": "MIT"}
    app = {"publisher": "rebafl", "components": dict(components), "config": config}
    (server / APP).mkdir(exist_ok=True)
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    write_whole(server / APP / "pyproject.toml", text.encode())


def go_on(server: Path, port: int) -> None:
    """Submit the wanted run, unless there is none or it is finished. Errors are left in `submitted.json`."""
    wanted = wanted_run(server)
    if wanted is None:
        return
    out, rounds = Path(wanted["out"]), int(wanted["rounds"])
    if rounds_of(out) >= rounds:
        return
    # The server app of a killed SuperLink ends only some seconds later; until then the directory is its own.
    if not wait_until(lambda: not is_locked(out), PATIENCE):
        _note(server, {"error": f"{out} is still being written by another process"})
        return
    found = flwr(server, port, "run", str(server / APP), LINK)
    run = found.get("run-id")
    _note(server, {"run": run} if run else {"error": _reason(found)})


def wanted_run(server: Path) -> Plain | None:
    path = server / APP / "pyproject.toml"
    if not exists(path):
        return None
    config: Plain = read_toml(path)["tool"]["flwr"]["app"]["config"]
    return config


def submitted(server: Path) -> Plain:
    try:
        found: Plain = json.loads((server / SUBMITTED).read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def ended(server: Path, port: int) -> str | None:
    """Why the submitted run is over, by Flower's account: '' if it is finished, None while it goes on."""
    found = submitted(server)
    if "error" in found:
        return str(found["error"])
    if (run := found.get("run")) is None:
        return None
    listed = flwr(server, port, "list", LINK, "--run-id", str(run)).get("runs") or [{}]
    status = str(listed[0].get("status", ""))
    if not status.startswith("finished"):
        return None
    return "" if status == "finished:completed" else _last_error(server, port, str(run)) or status


def _last_error(server: Path, port: int, run: str) -> str:
    """What the server app said last before it gave up; Flower keeps it in the run's log only."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", _call(server, port, "log", run, LINK, "--show").stdout)
    errors = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("ERROR")]
    return next((line for line in errors if line), "")


def rounds_of(out: Path) -> int:
    record = Record(out)
    return len(record.rounds()) if record.begun else 0


def flwr(server: Path, port: int, *words: str) -> dict[str, Any]:
    """Flower's own command, on this machine's SuperLink, in its JSON form."""
    done = _call(server, port, *words, "--format", "json")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError:
        return {"error-message": (done.stderr or done.stdout).strip()}


def _call(server: Path, port: int, *words: str) -> subprocess.CompletedProcess[str]:
    home = server / "flwr"
    home.mkdir(exist_ok=True)
    link = {"address": f"127.0.0.1:{port}", "root-certificates": str((server / "ca.crt").resolve())}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": LINK, LINK: link}}), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("flwr")), *words]
    return subprocess.run(command, env=hermetic(home), capture_output=True, text=True, check=False)


def hermetic(home: Path) -> dict[str, str]:
    """This process's environment, with Flower kept to itself: own files, no telemetry, no proxy in between."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }


def _reason(found: Mapping[str, Any]) -> str:
    lines = str(found.get("error-message") or "Flower did not say why").splitlines()
    return lines[-1] if lines else ""


def _note(server: Path, values: Plain) -> None:
    write_whole(server / SUBMITTED, json.dumps(values).encode())


def need_submitted(server: Path, seconds: float) -> None:
    """Wait until the run was handed to Flower; say what went wrong if it was not."""
    wait_until(lambda: submitted(server), seconds)
    found = submitted(server)
    if "run" not in found:
        raise UserError(f"Flower did not take the run ({found.get('error', 'no answer')}); see {server / 'log'}.")
