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
from rich.text import Text

from ..base.kinds import importing_only_if
from ..paper.verify import read
from ..runs.verify import RecordedRun, Repetition, repeat
from .terminal import AsJson, Display, TrustCode, given_path, in_words, out, say, show_table

Rounds = Annotated[int, typer.Option("--rounds", min=0, help="Only the first so many rounds; 0: all.")]
Work = Annotated[Path | None, typer.Option("--work", help="Keep the repetitions in this folder.")]


def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN|RESULT.json…", help="Run directories, result files.", parser=given_path),
    ],
    rounds: Rounds = 0,
    work: Work = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Run results again and compare every recorded number to the bit.

    Compared are all of `rounds.jsonl` but the seconds, and the weights if all rounds are repeated; of a result file of
    `rebafl paper`, all curves but the seconds. Exit code 0: the same; 1: different, and then it says from which round
    on, by how much, and which recorded facts differ from those of this machine; 2: it cannot be run again. See
    docs/reproducibility.md.

    Examples:

    * `rebafl verify runs/a`

    * `rebafl verify results/quick/fashion-mini-fedavg-seed0-11dfde.json --rounds 2`
    """
    with importing_only_if(trust_code, ", ".join(map(str, paths))):
        verify_all(paths, rounds, work, as_json)


def verify_all(paths: Sequence[Path], rounds: int, work: Path | None, as_json: bool) -> None:
    """One after the other, saying how long all will take; the command ends with 1 if one is different."""
    runs, repetitions = [read(path) for path in paths], []
    expected = [run.seconds(rounds or run.rounds) for run in runs]
    began = time.monotonic()
    with _folder(work) as folder:
        for number, run in enumerate(runs):
            slowdown = (time.monotonic() - began) / sum(expected[:number]) if number else 1.0
            if not as_json:
                left = in_words(sum(expected[number:]) * slowdown)
                say(f"[{number + 1}/{len(runs)}] {run.path}: about {left} left in all")
            repetitions.append(_repeat(run, rounds, folder / f"{number + 1}-{run.name}", silent=as_json))
            if not as_json:
                _show(repetitions[-1])
    if as_json:
        print(json.dumps([_plain(repetition) for repetition in repetitions]))
    if not all(repetition.same for repetition in repetitions):
        raise typer.Exit(1)


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        yield work
        return
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        yield Path(folder)


def _repeat(run: RecordedRun, rounds: int, target: Path, silent: bool) -> Repetition:
    with Display(run.repeated_settings(rounds), target, silent) as display:
        return repeat(run, rounds, target, display.listen, display.say)


def _show(repetition: Repetition) -> None:
    """Same or different; if different, where, by how much, and what else differs."""
    first, how_many = repetition.first, f"{repetition.rounds} of {repetition.of} rounds"
    if first is None:
        weights = ", and the weights," if repetition.weights is not None else ""
        out.print(Text(f"{repetition.path}: same: every number of {how_many}{weights} to the bit."), soft_wrap=True)
        return
    values = "" if first.quantity == "weights" else f" ({first.recorded} was recorded, {first.found} came out)"
    out.print(Text(f"{repetition.path}: different: {first.quantity} in round {first.round}{values}."), soft_wrap=True)
    gaps = [(name, "not numbers alone" if gap is None else f"{gap:.3g}") for name, gap in repetition.largest.items()]
    if repetition.weights is not None:
        gaps.append(("last weights", f"{repetition.weights:.3g}"))
    show_table(("quantity", f"largest difference in {how_many}"), gaps)
    if repetition.facts:
        facts = [(name, str(recorded), str(here)) for name, (recorded, here) in repetition.facts.items()]
        show_table(("fact", "recorded", "here"), facts)
    else:
        out.print("All recorded facts are the same here.")


def _plain(repetition: Repetition) -> dict[str, Any]:
    facts = {name: {"recorded": recorded, "here": here} for name, (recorded, here) in repetition.facts.items()}
    return {**asdict(repetition), "path": str(repetition.path), "same": repetition.same, "facts": facts}
