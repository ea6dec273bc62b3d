"""How are many settings run at once? As a grid: every word with several values is tried with every other.

Here, one run after the other, each on all cores; on Ray every run is one task, and as many run at a time as
there are CPUs. A run directory must then be one that all machines see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from ..base.config import Plain, parse_assignments
from ..base.errors import UserError
from ..engines import cores
from ..engines.jobs import TRIES
from ..engines.ray_tasks import connected
from .origin import OWN_CODE, changes_to_accept, latest, own_code, refusal_of
from .record import Record, rounds_done
from .settings import Settings, make_settings
from .simulate import simulate


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid: what sets it apart, its settings, and its run directory."""

    label: str
    settings: Settings
    out: Path


def grid(base: Plain, words: Sequence[str], folder: Path) -> list[GridPoint]:
    """All combinations of the words' values over `base`; a wrong one is refused before any is run."""
    choices = [
        [f"{name}={value}" for value in (alternatives(text) if name != "log" else [text])]
        for name, _, text in (w.partition("=") for w in words)
    ]
    points: dict[Path, GridPoint] = {}
    for chosen in product(*choices):
        settings = make_settings(base, parse_assignments(chosen))
        apart = [word for word, options in zip(chosen, choices, strict=True) if len(options) > 1]
        out = folder / settings.label
        points[out] = GridPoint(" ".join(apart) or settings.algorithm.name, settings, out)
    return list(points.values())


def alternatives(text: str) -> list[str]:
    """`"a,b"` to two values; commas within brackets or quotes belong to a value."""
    values, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and depth == 0 and not quote:
            values.append("")
            continue
        if letter in "\"'":
            quote = "" if quote == letter else quote or letter
        depth += (letter in "[{") - (letter in "]}")
        values[-1] += letter
    return values


def check_code(points: Sequence[GridPoint]) -> None:
    """Points that were run with other own code, finished ones too, would be compared with those that are to come."""
    for point in points:
        record = Record(point.out)
        facts = latest(record.environment()) if record.begun else {}
        if changes := changes_to_accept(facts, {OWN_CODE: own_code(point.settings)}):
            raise UserError(refusal_of(point.out, changes))


def run_on_ray(
    points: Sequence[GridPoint],
    workers: int,
    listen: Callable[[int], None] = lambda rounds: None,
    accept_changes: bool = False,
) -> None:
    """Run, or resume, all points; `listen` hears every second how many rounds are finished in all.

    A point that cannot be run does not stop the others; the first such is reported at the end.
    """
    problems = []
    with connected(workers or cores()) as ray:
        task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_run_point)
        left = {
            task.remote(point.settings.plain(), str(point.out.absolute()), accept_changes): point for point in points
        }
        while left:
            ready, _ = ray.wait(list(left), timeout=1.0)
            for reference in ready:
                point = left.pop(reference)
                try:
                    problem = ray.get(reference)
                except ray.exceptions.RayError as error:
                    problem = f"its Ray task failed ({type(error).__name__})"
                if problem:
                    problems.append(f"{point.label}: {problem}")
            listen(sum(rounds_done(point.out) for point in points))
    if problems:
        raise UserError(f"{len(problems)} of {len(points)} runs failed, the first being {problems[0]}")


def _run_point(settings: Plain, out: str, accept_changes: bool) -> str:
    """One whole run, in a worker of Ray's; the reason if it cannot be run. Whoever did it before went this far."""
    try:
        local = replace(make_settings(settings), engine="local", workers=1)
        simulate(local, out, say=lambda text: None, accept_changes=accept_changes)
    except UserError as error:
        return str(error)
    return ""
