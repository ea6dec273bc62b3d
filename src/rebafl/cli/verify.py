"""`rebafl verify`: run a result again, and say whether it came out the same to the bit."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..paper.verify import Kept, Verdict, read, repeat
from .terminal import AsJson, Display, in_words, out, say, show

Rounds = Annotated[int, typer.Option("--rounds", min=0, help="Only the first so many rounds; 0: all.")]
Work = Annotated[Path | None, typer.Option("--work", help="Keep the repetitions in this folder.")]


def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN|RESULT.json…", help="Run directories, result files.")],
    rounds: Rounds = 0,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """Run results again and compare every recorded number to the bit.

    Compared are all of `rounds.jsonl` but the seconds, and the weights if all rounds are repeated; of a result file of
    `rebafl paper`, all curves but the seconds. Exit code 0: the same; 1: different, and then it says from which round
    on, by how much, and what was recorded otherwise than it is here; 2: it cannot be run again. See
    docs/reproducibility.md.

    Examples:

    * `rebafl verify runs/a`

    * `rebafl verify results/quick/fashion-mini-fedavg-seed0-11dfde.json --rounds 2`
    """
    verify_all(paths, rounds, work, as_json)


def verify_all(paths: Sequence[Path], rounds: int, work: Path | None, as_json: bool) -> None:
    """One after the other, with what is left in all; the command ends with 1 if one is different."""
    every, verdicts = [read(path) for path in paths], []
    expected = [kept.seconds(rounds or kept.rounds) for kept in every]
    began = time.monotonic()
    with _folder(work) as folder:
        for number, kept in enumerate(every):
            slower = (time.monotonic() - began) / sum(expected[:number]) if number else 1.0
            if not as_json:
                left = in_words(sum(expected[number:]) * slower)
                say(f"[{number + 1}/{len(every)}] {kept.path}: about {left} left in all")
            verdicts.append(_repeat(kept, rounds, folder / f"{number + 1}-{kept.name}", silent=as_json))
            if not as_json:
                _tell(verdicts[-1])
    if as_json:
        print(json.dumps([_plain(verdict) for verdict in verdicts]))
    if not all(verdict.same for verdict in verdicts):
        raise typer.Exit(1)


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        yield work
        return
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        yield Path(folder)


def _repeat(kept: Kept, rounds: int, target: Path, silent: bool) -> Verdict:
    with Display(kept.again(rounds), target, silent) as display:
        return repeat(kept, rounds, target, display.listen, display.say)


def _tell(verdict: Verdict) -> None:
    first, how_many = verdict.first, f"{verdict.rounds} of {verdict.of} rounds"
    if first is None:
        weights = ", and the weights," if verdict.weights is not None else ""
        out.print(Text(f"{verdict.path}: same: every number of {how_many}{weights} to the bit."), soft_wrap=True)
        return
    values = "" if first.quantity == "weights" else f" ({first.recorded} was recorded, {first.found} came out)"
    out.print(Text(f"{verdict.path}: different: {first.quantity} in round {first.round}{values}."), soft_wrap=True)
    table = Table("quantity", f"largest difference in {how_many}")
    for name, gap in verdict.largest.items():
        table.add_row(name, "not numbers alone" if gap is None else f"{gap:.3g}")
    if verdict.weights is not None:
        table.add_row("last weights", f"{verdict.weights:.3g}")
    show(table)
    table = Table("fact", "recorded", "here")
    for name, (recorded, here) in verdict.facts.items():
        table.add_row(name, Text(str(recorded)), Text(str(here)))
    if verdict.facts:
        show(table)
    else:
        out.print("No recorded fact is another one here.")


def _plain(verdict: Verdict) -> dict[str, Any]:
    facts = {name: {"recorded": recorded, "here": here} for name, (recorded, here) in verdict.facts.items()}
    return {**asdict(verdict), "path": str(verdict.path), "same": verdict.same, "facts": facts}
