"""What does the paper show, and what must be run for it? Read from `items.toml`; nothing here knows a method."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..base.config import choices, parse_assignments, read_toml
from ..base.errors import UserError
from ..runs.settings import Settings, make_settings

HERE = Path(__file__).parent
OTHERS, EVERY, AT = "others", "every", " @ "
RACE = "race"  # a measure that the benchmark takes, not a cell
ALL = "all"  # in place of the names of all items
PAPER = "paper"  # the scale of the paper itself
HALF_A_POINT = 0.5  # of accuracy: what is less is no difference


@dataclass(frozen=True)
class Claim:
    """What the paper says: by `measure`, the first of each pair is above the second, under every condition (`where`:
    under these). `METHOD @ CONDITION` compares across conditions; `every` stands for each method in turn.

    `margin`: by how many points more than that; negative: so far below it may be. `bare`: any difference counts, where
    half a point means nothing.
    Or, instead of pairs, `ratio` of two methods is at most `most`.
    """

    text: str
    measure: str
    pairs: tuple[tuple[str, str], ...] = ()
    where: tuple[str, ...] = ()
    margin: float = 0.0
    bare: bool = False
    ratio: tuple[str, str] | None = None
    most: float = 0.0

    @property
    def counts_from(self) -> float:
        """Points by which a difference must be off the margin; a claim that names its points means these."""
        return 0.0 if self.bare or self.margin else HALF_A_POINT


@dataclass(frozen=True)
class Item:
    """A table or figure: methods under conditions, what is claimed of it, and what we found where ours differ.

    `ours` are methods that are not the paper's: run if they are named, shown beside its own, and no part of a claim.
    """

    name: str
    title: str
    shows: tuple[str, ...]
    methods: tuple[str, ...]
    conditions: Mapping[str, str]
    panels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # methods that are drawn apart from the others
    claims: tuple[Claim, ...] = ()
    note: str = ""
    findings: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    withdrawn: bool = False  # the paper's numbers stand in its source, commented out
    repeats: bool = False  # the paper's numbers are those of another item, shown again

    @property
    def shown_methods(self) -> tuple[str, ...]:
        """The paper's in its order, then ours."""
        return (*self.methods, *self.ours)


@dataclass(frozen=True)
class Scale:
    """How big: words for every cell, and what stands in for n_i and for the data sets."""

    name: str
    about: str
    words: tuple[str, ...]
    samples: int = 0
    datasets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run: a method under a condition, with a seed, at a scale."""

    method: str
    condition: str
    scale: str
    settings: Settings

    @property
    def key(self) -> str:
        """The same for cells of different items that are the same run."""
        return f"{self.scale}/{self.settings.label}"

    def with_rounds(self, rounds: int) -> Cell:
        return replace(self, settings=replace(self.settings, rounds=rounds))


@cache
def _file() -> Mapping[str, Any]:
    return read_toml(HERE / "items.toml")


@cache
def _printed() -> Mapping[str, Any]:
    numbers: Mapping[str, Any] = json.loads((HERE / "printed.json").read_text())
    return numbers


def printed(item: Item, condition: str, method: str) -> float | None:
    """The paper's own number, where it prints one."""
    value: float | None = _printed().get(item.name, {}).get(condition, {}).get(method)
    return value


def deviations() -> list[str]:
    """Where we had to choose, or chose otherwise."""
    return list(_file()["deviations"])


def item_names() -> list[str]:
    return list(_file()["items"])


def scale_names() -> list[str]:
    return list(_file()["scales"])


def find_item(name: str) -> Item:
    if name not in _file()["items"]:
        raise UserError(f"The paper has no item {name!r}{choices(name, item_names())}.")
    values = dict(_file()["items"][name])
    claims = tuple(Claim(**_tuples(claim)) for claim in values.pop("claims", []))
    return Item(name=name, claims=claims, **_tuples(values))


def find_items(names: Sequence[str]) -> list[Item]:
    """The items of these names; all of them for `all` alone."""
    if ALL in names and len(names) > 1:
        raise UserError(f"{ALL!r} stands alone, for every item; leave it out, or what stands beside it.")
    return [find_item(name) for name in (item_names() if list(names) == [ALL] else names)]


def find_scale(name: str) -> Scale:
    if name not in _file()["scales"]:
        raise UserError(f"--scale: there is no {name!r}{choices(name, scale_names())}.")
    return Scale(name=name, **_tuples(_file()["scales"][name]))


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, for frozen things."""
    return {
        name: tuple(tuple(v) if isinstance(v, list) else v for v in value) if isinstance(value, list) else value
        for name, value in values.items()
    }


def cells(item: Item, scale: Scale, seeds: Sequence[int] = (0,), ours: bool = False) -> list[Cell]:
    """All runs of an item, in the order of its conditions; of methods that are not the paper's only with `ours`."""
    return [
        Cell(method, condition, scale.name, replace(settings, seed=seed))
        for condition, words in item.conditions.items()
        for method in (item.shown_methods if ours else item.methods)
        for settings in [_settings(scale, words, method)]
        for seed in seeds
    ]


def cells_of(
    items: Sequence[Item], scale: Scale, seeds: Sequence[int], only: Collection[str], where: Collection[str]
) -> list[Cell]:
    """The runs of several items, of some methods (`only`) and under some conditions (`where`) if any are named.

    Methods of ours are run only if they are named.
    """
    _check("--only", only, {method for item in items for method in item.shown_methods})
    _check("--where", where, {condition for item in items for condition in item.conditions})
    return [
        cell
        for item in items
        for cell in cells(item, scale, seeds, ours=bool(only))
        if (not only or cell.method in only) and (not where or cell.condition in where)
    ]


def _check(option: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{option}: there is no {name!r}{choices(name, known)}.")


def _settings(scale: Scale, condition: str, method: str) -> Settings:
    words = [*scale.words, *condition.split(), *_file()["methods"][method].split()]
    chosen = parse_assignments(words)
    settings = make_settings(chosen)
    if not scale.datasets:
        return settings
    # the stand-in keeps what the paper uses for the data set it stands for, and brings no settings of its own
    kept = settings.plain() | {"dataset": scale.datasets[settings.dataset]}
    if "samples" in kept["partition"]:
        kept["partition"]["samples"] = scale.samples
    return make_settings(kept)
