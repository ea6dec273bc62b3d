"""How do words on the command line become values? Settings and a run's directory; numbers, seeds, lengths of time."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ..base.config import Plain, parse_assignments
from ..base.errors import UserError, exists
from ..data import check_name
from ..runs.record import CONFIG, Record, read_settings
from ..runs.settings import KEPT_APART, SECTIONS, Settings, make_settings, resumed_settings
from ..runs.simulate import OWN_MODEL
from ..runs.sweep import options

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG.toml] [KEY=VALUE]…", help="A settings file, and settings that win over it."),
]


def split_words(words: list[str]) -> tuple[Plain, list[str], Path | None]:
    """[CONFIG.toml] [KEY=VALUE …] -> the file's settings, the words without `out`, and what `out` says."""
    from_file = bool(words) and "=" not in words[0]
    if from_file and not exists(Path(words[0])):
        raise UserError(
            f"There is no settings file {words[0]}; name one that is there (`rebafl settings` prints one to start "
            "from) or give settings as KEY=VALUE."
        )
    base = read_settings(Path(words[0])) if from_file else {}
    rest = words[1:] if from_file else words
    chosen = [base.pop("out")] if "out" in base else []
    chosen += [word.removeprefix("out=") for word in rest if word.startswith("out=")]
    if any(not isinstance(value, str) or not value for value in chosen):
        raise UserError("out must be the path of a directory.")
    return base, [word for word in rest if not word.startswith("out=")], Path(chosen[-1]) if chosen else None


def read_words(words: list[str]) -> tuple[Settings, Path]:
    """[CONFIG.toml] [KEY=VALUE …] -> settings and the run's directory; an existing run brings its own settings."""
    base, rest, target = split_words(words)
    layers = [base, parse_assignments(chain.from_iterable(map(_of_one_run, rest)))]
    if target and exists(target / CONFIG):
        stored = Record(target).config()
        settings = resumed_settings(stored, stored, *layers)
    else:
        settings = make_settings(*layers)
    if settings.model.kind != OWN_MODEL:
        check_name(settings.dataset)
    return settings, target or Path("runs") / settings.label


def _of_one_run(word: str) -> list[str]:
    """`algorithm=rebafl[mu=5.0]`, a name as `sweep` takes it and `advise` gives it, as plain words."""
    if word.partition("=")[0] not in SECTIONS:
        return [word]
    first, *others = options(word)
    if others:
        raise UserError(f"{word} names {1 + len(others)} settings; give one of them, or all of them to rebafl sweep.")
    return first


def need_settings_or_a_run(words: list[str]) -> None:
    """`out=` alone, or with what may differ when a run is resumed, means a run that is there: a typo starts none."""
    base, rest, target = split_words(words)
    resumes = all(re.split(r"[.=]", word)[0] in KEPT_APART for word in rest)
    if target and not base and resumes and not exists(target / CONFIG):
        raise UserError(
            f"There is no run in {target} to resume; give its right name, or say what to run there, such as "
            f"dataset=fashion-mini rounds=20 out={target}."
        )


def parse_numbers(text: str, option: str) -> list[float] | None:
    """`0.5,0.3,0.2`; None for nothing."""
    try:
        return [float(word) for word in text.split(",")] if text else None
    except ValueError:
        raise UserError(f"{option} {text!r} is not a list of numbers with commas between.") from None


def parse_time(text: str) -> float:
    """`1h30m` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text)
    if not text or not parts:
        raise UserError(f"--budget: {text!r} is no length of time; write 2h, 45m or 1h30m.")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return 3600 * hours + 60 * minutes + seconds


def parse_seeds(text: str) -> list[int]:
    """`0,1,2`."""
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds: {text!r} should be whole numbers such as 0,1,2.") from None
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise UserError(f"--seeds: {seed} is none; seeds are whole numbers from 0 to 2^63 - 1.")
    return seeds
