"""How are many settings run? As a grid: every word with several values is tried with every other.

Several values are `seed=0,1,2`, or `seed=0..2`; what belongs to one kind only stands in brackets behind it, as in
`algorithm=fedavg,rebafl[mu=0.1,0.5]`. Runs go one after the other, each on all cores, or several at once, each on one;
on Ray every run is one task, and its directory must be one that all machines see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

from ..base.config import Plain, parse_assignments
from ..base.errors import UserError
from ..base.words import Say
from ..engines import cores
from ..engines.jobs import TRIES
from ..engines.ray_tasks import connected
from .at_once import each_at_once
from .origin import OWN_CODE, changes_to_accept, latest, own_code, refusal_of
from .record import Record, rounds_done
from .settings import SECTIONS, Settings, make_settings
from .simulate import need_trained, simulate

MOST = 10_000  # values of one word


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid: what sets it apart, its settings, and its run directory."""

    label: str
    settings: Settings
    out: Path


def grid(base: Plain, words: Sequence[str], folder: Path) -> list[GridPoint]:
    """All combinations of the words' values over `base`; a wrong one is refused before any is run."""
    choices = [options(word) for word in words]
    points: dict[Path, GridPoint] = {}
    for chosen in product(*choices):
        settings = make_settings(base, parse_assignments(chain(*chosen)))
        apart = [" ".join(some) for some, others in zip(chosen, choices, strict=True) if len(others) > 1]
        out = folder / settings.label
        points[out] = GridPoint(" ".join(apart) or settings.algorithm.name, settings, out)
    return list(points.values())


def options(word: str) -> list[list[str]]:
    """What one word of the grid can mean: each option as plain words."""
    name, _, text = word.partition("=")
    if name == "log":  # several loggers are one value
        return [[word]]
    found: list[list[str]] = []
    for value in alternatives(text):
        own = re.fullmatch(r"([^\[\]]+)\[(.*)\]", value) if name in SECTIONS else None
        if own:
            kind, inside = own.groups()
            found += [[f"{name}={kind}", *some] for some in product(*_settings_of(f"{name}.", kind, inside))]
        else:
            found += [[f"{name}={one}"] if "=" in word else [word] for one in _counted(value)]
    return found


def _settings_of(prefix: str, kind: str, inside: str) -> list[list[str]]:
    """`mu=0.1,0.5,eps=0.01`: for each setting of a kind its values, as words."""
    keys: list[list[str]] = []
    for part in alternatives(inside):
        key, equals, value = part.partition("=")
        if equals:
            keys.append([f"{prefix}{key.strip()}={one}" for one in _counted(value)])
        elif keys:
            start = keys[-1][0].partition("=")[0]
            keys[-1] += [f"{start}={one}" for one in _counted(part)]
        else:
            raise UserError(f"{kind}[{inside}]: in the brackets stand settings of {kind}, such as {kind}[mu=0.1,0.5].")
    return keys


def _counted(value: str) -> list[str]:
    """`0..4` as five values; everything else as it is."""
    span = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", value)
    if not span:
        return [value]
    first, last = map(int, span.groups())
    if not first <= last < first + MOST:
        raise UserError(f"{value} should count upwards, such as 0..4, and to {MOST} values at most.")
    return [str(number) for number in range(first, last + 1)]


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
    _report(problems, len(points))


def run_at_once(
    points: Sequence[GridPoint],
    processes: int,
    listen: Callable[[int], None] = lambda rounds: None,
    say: Say = lambda text: None,
    accept_changes: bool = False,
) -> None:
    """The same in so many processes here, each with one compute thread; 0: one per core."""
    problems = []

    def task(point: GridPoint) -> str:
        return _run_point(point.settings.plain(), str(point.out), accept_changes)

    def look() -> None:
        listen(sum(rounds_done(point.out) for point in points))

    for number, (point, problem) in enumerate(each_at_once(task, points, processes or cores(), look), 1):
        say(f"[{number}/{len(points)}] {point.label}: {problem or 'done'}")
        problems += [f"{point.label}: {problem}"] if problem else []
    look()
    _report(problems, len(points))


def _report(problems: Sequence[str], runs: int) -> None:
    if problems:
        raise UserError(f"{len(problems)} of {runs} runs failed, the first being {problems[0]}")


def _run_point(settings: Plain, out: str, accept_changes: bool) -> str:
    """One whole run, in another process; the reason if it cannot be run. Whoever did it before went this far."""
    try:
        local = replace(make_settings(settings), engine="local", workers=1)
        need_trained(simulate(local, out, say=lambda text: None, accept_changes=accept_changes), local)
    except UserError as error:
        return str(error)
    return ""
