"""`rebafl bench`: how fast is it?"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..base.errors import UserError
from ..base.files import write_text
from ..bench.stopwatch import OnStep
from .terminal import AsJson, err, out, progress_bar, say, show_table


def bench(
    target: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("bench"),
    peers: Annotated[Path, typer.Option("--peers", help="Environments made by `make bench-peers`.")] = Path(".bench"),
    repeats: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 3,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of a measurement; the first is not counted.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Only these contenders (rebafl always).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small workload: does it work at all?")] = False,
    scale: Annotated[bool, typer.Option("--scale", help="How cost grows with clients, instead of the race.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="What many active clients of a large model need.")] = False,
    methods: Annotated[bool, typer.Option("--methods", help="Each method's rounds beside FedAvg's.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed: this package beside what one would use instead, on the same work in one run.

    Run it on a machine with nothing else to do. Peers that are not installed are listed as absent.

    Examples:

    * `rebafl bench`  (about 20 minutes; writes bench/race.json and bench/race.png)

    * `rebafl bench --quick --only plain-processes`

    * `rebafl bench --scale`  (up to 100,000 clients; bench/scale.json and bench/scale.png)

    * `rebafl bench --memory`  (20 and 200 active clients, 10 million parameters; 40 GB of disk; bench/memory.json)

    * `rebafl bench --methods`  (all methods, rounds in turn; bench/methods.json)
    """
    from ..bench.race import measure_methods, measure_race
    from ..bench.scale import measure_memory, measure_scale
    from ..report import figures, speed  # matplotlib is slow to import

    target.mkdir(parents=True, exist_ok=True)
    kinds = {"memory": memory, "scale": scale, "methods": methods}
    if sum(kinds.values()) > 1:
        raise UserError("--scale, --memory and --methods measure different things: give one of them at a time.")
    if methods and only:
        raise UserError(
            "--only names contenders of the race; --methods measures all methods, so leave one of them out."
        )
    name = next((kind for kind, asked in kinds.items() if asked), "race")
    with _steps() as on_step, tempfile.TemporaryDirectory(prefix="bench-", dir=target if memory else None) as folder:
        if memory:
            measured = measure_memory(Path(folder), on_step)
        elif scale:
            measured = measure_scale(Path(folder), pairs=5, on_step=on_step)
        elif methods:
            measured = measure_methods(Path(folder), quick, rounds, on_step)
        else:
            measured = measure_race(Path(folder), peers, only or [], quick, repeats, rounds, on_step)
    written = [target / f"{name}.json"]
    write_text(written[0], json.dumps(measured, indent=1) + "\n")
    if name in ("race", "scale"):
        written.append(target / f"{name}.png")
        figures.draw_scale(measured["curves"], written[1]) if scale else figures.draw_race(measured, written[1])
    if as_json:
        print(json.dumps(measured))
        return
    for header, rows in speed.tables(measured):
        show_table(header, rows)
    out.print(Text(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)


@contextmanager
def _steps() -> Iterator[OnStep]:
    """A progress bar over named steps; elsewhere than on a terminal, one line per step."""
    with progress_bar(disable=not err.is_terminal) as progress:
        bar = progress.add_task("preparing", total=None, facts="")

        def step(done: int, total: int, text: str) -> None:
            progress.update(bar, completed=done, total=total, description=text)
            if not err.is_terminal:
                say(f"[{done + 1}/{total}] {text}")

        yield step
