"""`rebafl advise`: which method would be best in a setting of one's own? What was measured near it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from operator import attrgetter
from typing import Annotated

import typer
from rich.text import Text

from ..advice import nearest
from ..advice.limits import is_ours, limits_in_words, shared_in_words
from ..advice.measured import SCALES, Entry, Measured, shipped
from ..advice.nearest import Advice, Near
from ..advice.setting import STANDS_FOR
from ..advice.verdict import Verdict, mean, swing
from ..base.config import Plain
from ..data import is_here
from .terminal import AsJson, out
from .words import Words, read_words

NAME = attrgetter("name")
SHOWN = 3  # files behind a condition
OURS = (
    "tuned here for longer than the others, which at the paper's scale have the settings of their papers; and earlier "
    "forms of it were seen on test images with 50 clients of which a tenth was there (docs/beyond.md). With 3,000 iid "
    "images a client FedAvg was ahead of it (docs/algorithms/fedtrack.md)."
)
NoState = Annotated[bool, typer.Option("--no-state", help="Clients may keep nothing from round to round.")]


def advise(words: Words = None, no_state: NoState = False, as_json: AsJson = False) -> None:
    """Say which method was best in the settings nearest to yours, by how much, how sure, and at which cost.

    It takes the words of `rebafl run`, and trains nothing. Methods that your settings rule out (`--no-state`,
    `protect.…`, `robust=…`) are left out. docs/which-method.md has all that was measured, and says what near means.

    Examples:

    * `rebafl advise dataset=fashion-mnist partition.clients=50 participation.p=0.1`

    * `rebafl advise config.toml --no-state`

    * `rebafl advise partition=dirichlet partition.alpha=0.1 participation=fraction participation.share=0.1 --json`
    """
    settings, _ = read_words(words or [])
    measured = shipped()
    advice = nearest.advise(settings, words or [], measured, no_state)
    if as_json:
        print(json.dumps(_plain(advice)))
    else:
        stand_in = f" ({settings.dataset} counts as it)" if settings.dataset in STANDS_FOR else ""
        _print(f"Your setting: {advice.setting}{stand_in}.")
        _show(advice, measured)
        once = "once it can be run, " if advice.refused else ""
        once = once if is_here(settings.dataset) else "once its data are here and show that it can be run, "
        _print(f"To measure it in your own setting, {once}{advice.runs} runs: {advice.again}")


def _show(advice: Advice, measured: Measured) -> None:
    if advice.refused:
        _print(f"It cannot be run as it is: {advice.refused}")
    if advice.setting.classes is None:
        _print(
            "Who holds which classes cannot be told before the data are here (rebafl data get); get them, or name a "
            "partition like yours, such as partition=dirichlet."
        )
    if advice.setting.total is None:
        _print("How many classes there are in all cannot be told before the data are here; they count as 10.")
    _print(advice.take, "bold")
    for near in advice.found:
        _show_near(near, measured)
    _print("")
    level = {entry.name: entry.algorithm for near in advice.found for entry in _level(near)}
    if ours := [name for name, algorithm in level.items() if is_ours(algorithm)]:
        _print(f"Of this project: {', '.join(ours)}; {OURS}", "dim")
    for reason in dict.fromkeys(advice.excluded.values()):
        names = [name for name, own in advice.excluded.items() if own == reason]
        _print(f"Left out: {', '.join(names)}, since {reason.rstrip('.')}.", "dim")


def _print(text: str, style: str = "") -> None:
    out.print(Text(text, style), soft_wrap=True)


def _show_near(near: Near, measured: Measured) -> None:
    condition, verdict = near.condition, near.verdict
    _print(f"\n{condition.setting}", "bold")
    _print(f"  {near.words}\n  {SCALES[condition.scale]}")
    _print(f"  {verdict.sentence(NAME)}")
    if near.stateless:
        _print(f"  If clients keep no state: {near.stateless.sentence(NAME)}")
    for entry in _level(near):
        ratio = measured.seconds.get(entry.kind)
        seconds = f"{ratio[0]:.2f} times FedAvg's seconds" if ratio else "seconds not measured"
        size = f"{entry.up / 1000:.0f} kB up, {entry.down / 1000:.0f} kB down a client and round"
        _print(f"  {entry.name}: {size}; {seconds}; clients keep: {entry.algorithm.costs.state}; {_given_away(entry)}")
    files = _files([verdict, *filter(None, [near.stateless])], condition.scale)
    more = f" and {len(files) - SHOWN} more (--json has them all)" if len(files) > SHOWN else ""
    _print(f"  from {', '.join(files[:SHOWN])}{more}", "dim")


def _given_away(entry: Entry) -> str:
    """What its uploads hold beside what all uploads do, and what does not protect that."""
    limits = limits_in_words(entry.algorithm)
    return f"uploads beside weights and class counts: {shared_in_words(entry.algorithm)}" + (
        f" ({limits})" if limits else ""
    )


def _level(near: Near) -> list[Entry]:
    """The methods that may be taken, those whose clients keep nothing among them."""
    level = [*near.verdict.level, *(near.stateless.level if near.stateless else [])]
    return list({entry.name: entry for entry in level}.values())


def _files(verdicts: Sequence[Verdict], scale: str) -> list[str]:
    """The cells of the methods that are named."""
    named = [pair for verdict in verdicts for pair in verdict.named]
    cells = [entry.cells[seed] for entry, seeds in named for seed in seeds]
    return list(dict.fromkeys(f"results/{scale}/{cell.file}.json" for cell in cells))


def _plain(advice: Advice) -> Plain:
    first = advice.found[0] if advice.is_near else None
    take = [entry.name for entry in first.verdict.level] if first and first.is_firm else []
    said = {"setting": str(advice.setting), "near": advice.is_near, "methods": take, "take": advice.take}
    said |= {"excluded": advice.excluded, "run": advice.again, "refused": advice.refused}
    return {**said, "found": [_plain_near(near) for near in advice.found]}


def _plain_near(near: Near) -> Plain:
    scale = near.condition.scale
    return {
        "setting": str(near.condition.setting),
        "scale": scale,
        "steps": near.steps if isfinite(near.steps) else None,
        "differences": [words for _, words in near.differences],
        "sizes": [words for _, words in near.sizes],
        **_plain_verdict(near.verdict, scale),
        "without_state": _plain_verdict(near.stateless, scale) if near.stateless else None,
    }


def _plain_verdict(verdict: Verdict, scale: str) -> Plain:
    leads = [
        {
            "over": lead.over.name,
            "points": round(lead.mean, 4),
            "at_the_end": round(lead.late, 4),
            "error": round(lead.error, 4) if len(lead.differences) > 1 else None,
            "seeds": [*lead.differences],
            "sure": lead.sure,
        }
        for lead in verdict.leads
    ]
    best = verdict.best
    return {
        "best": best.name,
        "accuracy": round(mean(best), 4),
        "swing": round(swing(best), 4),
        "bytes_up": best.up,
        "bytes_down": best.down,
        "clients_keep": best.algorithm.costs.state,
        "uploads_beside_weights_and_counts": shared_in_words(best.algorithm),
        "limits": limits_in_words(best.algorithm),
        "leads": leads,
        "cells": _files([verdict], scale),
    }
