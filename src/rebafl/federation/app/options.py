"""What does a federation need to know beside the run's settings? And how do both come out of Flower's run config?

Flower's run config is flat and holds single values only, and a key can be changed on the command line only if
`pyproject.toml` lists it. So what is often changed is listed there, and `settings` takes everything else, in
the words of `rebafl run`: `settings = "algorithm.mu=0.2 training.epochs=1"`.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...base.config import build, nested, parameters, parse_assignments
from ...base.errors import UserError
from ...runs.settings import Settings, make_settings

WORDS = "settings"
CountsRule = Literal["split", "fixed", "free"]


@parameters
class Options:
    """How the server of a federation behaves. None of it changes what a round computes from the same uploads."""

    out: Annotated[str, Field(min_length=1, description="run directory, on the server")] = "runs/federation"
    deadline: Annotated[float, Field(gt=0, description="seconds after which a round closes")] = 60.0
    min_nodes: Annotated[int, Field(ge=1, description="nodes that must be connected when a round begins")] = 2
    wait: Annotated[float, Field(ge=0, description="seconds to wait for that many nodes before giving up")] = 300.0
    patience: Annotated[int, Field(ge=1, description="rounds in a row without a usable reply that end the run")] = 3
    max_norm: Annotated[float, Field(ge=0, description="farthest an upload may move the weights; 0: any")] = 0.0
    max_value: Annotated[float, Field(gt=0, description="largest number that an upload may hold")] = 1e6
    counts: Annotated[
        CountsRule, Field(description="class counts of a client: of its part of the data set, as it said first, or any")
    ] = "fixed"
    max_samples: Annotated[
        int, Field(ge=0, description="most samples a client may claim; 0: as many as the data set's training part has")
    ] = 0
    accept_changes: Annotated[
        bool, Field(description="resume a run although its own code was edited, or on another kind of bits")
    ] = False
    members: Annotated[str, Field(description="file that says which key is which client; empty: see the docs")] = ""


def read_run_config(values: Mapping[str, Any]) -> tuple[Settings, Options]:
    """Both, from Flower's flat values; what is wrong is said in one sentence."""
    names = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(Options)}
    rest = dict(values)
    given = {names[key]: rest.pop(key) for key in list(rest) if key in names}
    options = build(Options, given, "federation")
    words = rest.pop(WORDS, "")
    try:
        chosen = parse_assignments(shlex.split(words))
    except (ValueError, AttributeError):
        raise UserError(f"{WORDS} = {words!r} is not a list of KEY=VALUE words.") from None
    settings = make_settings({"participation": "always"}, nested(rest.items()), chosen)
    if settings.dropout != "away" or settings.delivery.name != "always":
        raise UserError("dropout and delivery lose uploads on purpose, in simulations; a federation loses its own.")
    if settings.attack.name != "none":
        raise UserError(f"attack={settings.attack.name} makes clients lie, in simulations; use attack=none.")
    if settings.algorithm.pooled:
        raise UserError(f"algorithm={settings.algorithm.name} needs all data in one place; simulate it: rebafl run.")
    return settings, _without_single_uploads(options, "counts" in given) if settings.protect.secagg else options


def _without_single_uploads(options: Options, counts_given: bool) -> Options:
    """The options of a masked run; those that compare the uploads of single clients are refused."""
    known = "and with protect.secagg only their sum is known"
    if options.max_norm:
        raise UserError(
            f"max-norm={options.max_norm:g} compares the uploads of single clients, {known}; use max-norm=0, and "
            "protect.update_clip to have clients bound it themselves."
        )
    if counts_given and options.counts != "free":
        raise UserError(
            f"counts={options.counts} compares the class counts of single clients, {known}; use counts=free."
        )
    return dataclasses.replace(options, counts="free")
