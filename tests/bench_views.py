"""How fast are the views? Measured in a real browser, against what they are to reach:

    python tests/bench_views.py [FILE.json]

Runs are made up (seed 0) and written to a temporary folder; the slow-down of a run is measured on real ones. It takes
some three minutes, and says how busy the machine was with other things.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from rebafl.runs.environment import machine
from rebafl.runs.record import rounds_done
from rebafl.runs.stopping import request_stop
from rebafl.ui.report_file import report
from support.browser import Watched, chromium, served, until
from support.views import drawn_lines, write_lines, written_run

CLIENTS, ROUNDS, RUNS = 10_000, 1_000, 300
WINDOWS, SECONDS = 16, 5  # in which a run is looked at, or not
TO_REACH = {
    "first map, seconds": 1.5,
    "pan or zoom, median ms": 100,
    "append of a round to all curves, ms": 150,
    "folder usable, seconds": 3,
    "slow-down of a followed run, percent": 1,
    "report, bytes": 2_000_000,
    "report, requests": 0,
    "report, console errors": 0,
}
MOVES = """() => { const times = [], { sync, heats } = RF;
  for (let i = 0; i < 40; i += 1) {
    const began = performance.now();
    if (i % 4 === 0) sync.zoom(0.7); else if (i % 4 === 2) sync.zoom(1.4); else sync.pan(i % 8 < 4 ? 0.2 : -0.2);
    for (const name of ["recall", "presence", "clients"]) heats[name].draw();
    times.push(performance.now() - began);
  }
  return times; }"""


@contextmanager
def entered(browser: Any, folder: Path, wait: str = "table.runs") -> Iterator[tuple[Any, str]]:
    """A page that was let in, and the address of its server."""
    with served(folder) as address:
        watched = Watched(browser, viewport={"width": 1400, "height": 1000})
        watched.page.goto(address)
        watched.page.wait_for_selector(wait)
        yield watched.page, address.partition("?")[0]
        watched.context.close()


def many_clients(browser: Any, folder: Path) -> dict[str, float]:
    written_run(folder / "big" / "run", drawn_lines(CLIENTS, ROUNDS), CLIENTS, rounds=ROUNDS)
    with entered(browser, folder / "big") as (page, address):
        page.goto("about:blank")
        began = time.perf_counter()
        page.goto(address + "#run=run")
        until(page, "typeof RF !== 'undefined' && RF.heats && RF.heats.clients && RF.heats.clients.plot", 60)
        first = time.perf_counter() - began
        times = page.evaluate(MOVES)
    return {"first map, seconds": first, "pan or zoom, median ms": median(times)}


def many_runs(browser: Any, folder: Path) -> dict[str, float]:
    lines, place = drawn_lines(20, ROUNDS), folder / "many"
    records = [written_run(place / f"run-{n:03}", lines[: ROUNDS - 1], 20, rounds=ROUNDS, seed=n) for n in range(RUNS)]
    with served(place) as address:
        page = Watched(browser, viewport={"width": 1400, "height": 1000}).page
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("table.runs tbody tr")
        usable = time.perf_counter() - began
        page.goto(address.partition("?")[0] + "#overlay=*&seeds=apart")
        page.wait_for_selector("[data-overlay] canvas", timeout=60_000)
        page.wait_for_timeout(4_000)
        appends = []
        for record in records[:5]:  # one run after the other gets a round; each time all curves are drawn anew
            page.evaluate("RF.lastAppend = 0")
            write_lines(record, lines)
            until(page, "RF.lastAppend > 0", 60)
            appends.append(page.evaluate("RF.lastAppend"))
        append = median(appends)
    return {"folder usable, seconds": usable, "append of a round to all curves, ms": append}


def slow_down(browser: Any, folder: Path) -> dict[str, float]:
    """One real run, looked at and left alone in turn: processor seconds of a round, medians with and without.

    Server and browser work on another core if one is free; where none is, they take their share like any other program,
    which this number does not show.
    """
    place = folder / "real"
    written_run(place / "other", drawn_lines(4, 3), 4)
    words = ["dataset=fashion-mini", "model=mlp", "partition.clients=10", "partition.samples=200", "workers=1", "-q"]
    command = [sys.executable, "-m", "rebafl", "run", *words, "rounds=100000", f"out={place / 'run'}"]
    taken: dict[bool, list[float]] = {True: [], False: []}
    with entered(browser, place) as (page, address), subprocess.Popen(command) as process:
        while rounds_done(place / "run") < 3:
            time.sleep(0.2)
        for window in range(WINDOWS):
            followed = window % 2 == 1
            page.goto(address + "#run=run" if followed else "about:blank")
            if followed:
                until(page, "typeof RF !== 'undefined' && RF.heats && RF.heats.clients", 30)
            first, before = rounds_done(place / "run"), sum(psutil.Process(process.pid).cpu_times()[:2])
            time.sleep(SECONDS)
            spent = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
            taken[followed].append(spent / (rounds_done(place / "run") - first))
        request_stop(place / "run")
        process.wait(60)
    return {"slow-down of a followed run, percent": 100 * (median(taken[True]) / median(taken[False]) - 1)}


def mailed(browser: Any, folder: Path) -> dict[str, float]:
    file = folder / "report.html"
    file.write_text(report([folder / "big" / "run"]))
    watched = Watched(browser, offline=True)
    watched.page.goto(file.as_uri())
    until(watched.page, "RF.heats && RF.heats.clients && RF.heats.clients.plot", 60)
    others = [url for url in watched.requests if url != file.as_uri() and not url.startswith(("data:", "blob:"))]
    size = float(file.stat().st_size)
    return {"report, bytes": size, "report, requests": len(others), "report, console errors": len(watched.errors)}


def main() -> None:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        found: dict[str, float] = {}
        for part in (many_clients, mailed, many_runs, slow_down):
            found |= part(browser, Path(name))
            print({key: round(value, 2) for key, value in found.items()}, flush=True)
    rows = {key: {"measured": round(found[key], 3), "at most": most} for key, most in TO_REACH.items()}
    facts = {name: machine()[name] for name in ("processor", "cores", "python", "rebafl")}
    result = {"command": "python tests/bench_views.py", "seed": 0, "load before": load, "machine": facts, "rows": rows}
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")
    missed = [key for key, row in rows.items() if row["measured"] > row["at most"]]
    sys.exit(f"Not reached: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
