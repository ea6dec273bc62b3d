"""`rebafl bench`: how fast is it?"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..base.config import Plain
from ..base.errors import UserError
from ..bench.stopwatch import Listen
from .terminal import AsJson, err, out, progress_bar, say, show, write_text


def bench(
    target: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("bench"),
    peers: Annotated[Path, typer.Option("--peers", help="Environments made by `make bench-peers`.")] = Path(".bench"),
    repeats: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 3,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of a measurement; the first is not counted.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Only these contenders (rebafl always).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small workload: does it work at all?")] = False,
    scale: Annotated[bool, typer.Option("--scale", help="How cost grows with clients, instead of the race.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="What many active clients of a large model need.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed: this package beside what one would use instead, on the same work in one run.

    A machine with nothing else to do, please. Peers that are not installed are listed as absent.

    Examples:

    * `rebafl bench`  (about 20 minutes; writes bench/race.json and bench/race.png)

    * `rebafl bench --quick --only plain-processes`

    * `rebafl bench --scale`  (up to 100,000 clients; bench/scale.json and bench/scale.png)

    * `rebafl bench --memory`  (20 and 200 active clients, 10 million parameters; 40 GB of disk; bench/memory.json)
    """
    from ..bench.scale import measure_memory, measure_scale
    from ..report import figures, speed  # matplotlib is slow to import

    target.mkdir(parents=True, exist_ok=True)
    name = "memory" if memory else "scale" if scale else "race"
    with _steps() as step, tempfile.TemporaryDirectory(prefix="bench-", dir=target if memory else None) as folder:
        if memory:
            found = measure_memory(Path(folder), step)
        elif scale:
            found = measure_scale(Path(folder), pairs=5, listen=step)
        else:
            found = _race(Path(folder), peers, repeats, rounds, only or [], quick, step)
    written = [target / f"{name}.json"]
    write_text(written[0], json.dumps(found, indent=1) + "\n")
    if not memory:
        written.append(target / f"{name}.png")
        figures.draw_scale(found["curves"], written[1]) if scale else figures.draw_race(found, written[1])
    if as_json:
        print(json.dumps(found))
        return
    for header, rows in speed.tables(found):
        table = Table(*header)
        for row in rows:
            table.add_row(*map(Text, row))
        show(table)
    out.print(Text(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)


@contextmanager
def _steps() -> Iterator[Listen]:
    """A bar that hears how many steps there are and the name of each; elsewhere than on a terminal, a line a step."""
    with progress_bar(disable=not err.is_terminal) as progress:
        bar = progress.add_task("preparing", total=None, facts="")

        def step(done: int, total: int, text: str) -> None:
            progress.update(bar, completed=done, total=total, description=text)
            if not err.is_terminal:
                say(f"[{done + 1}/{total}] {text}")

        yield step


def _race(folder: Path, peers: Path, repeats: int, rounds: int, only: list[str], quick: bool, listen: Listen) -> Plain:
    from ..bench import race
    from ..bench.peak import training_share
    from ..bench.workload import SMALL, Size

    found = race.contenders(peers)
    if unknown := set(only) - {contender.name for contender in found}:
        names = ", ".join(contender.name for contender in found)
        raise UserError(f"--only: there is no contender {sorted(unknown)[0]!r}; there are {names}.")
    chosen = [contender for contender in found if not only or contender.name in {race.OURS, *only}]
    size = replace(SMALL if quick else Size(), rounds=rounds)
    found_out = race.race(chosen, size, repeats, folder, listen)
    return found_out | {"training": [] if quick else [training_share(name) for name in ("fashion-mnist", "cifar-10")]}
