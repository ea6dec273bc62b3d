"""How are many settings run at once? As a grid: every word with several values is tried with every other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from .config import Plain, parse_assignments
from .settings import Settings, make_settings


@dataclass(frozen=True)
class Cell:
    """One point of the grid: what sets it apart, its settings, and its run directory."""

    label: str
    settings: Settings
    out: Path


def grid(base: Plain, words: Sequence[str], folder: Path) -> list[Cell]:
    """All combinations of the words' values over `base`; a wrong one is refused before any is run."""
    choices = [
        [f"{name}={value}" for value in alternatives(text)] for name, _, text in (w.partition("=") for w in words)
    ]
    cells: dict[Path, Cell] = {}
    for chosen in product(*choices):
        settings = make_settings(base, parse_assignments(chosen))
        apart = [word for word, options in zip(chosen, choices, strict=True) if len(options) > 1]
        out = folder / settings.label
        cells[out] = Cell(" ".join(apart) or settings.algorithm.name, settings, out)
    return list(cells.values())


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
