"""What is one run? All its settings, typed; how layers of plain values become them, and what may change later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from .. import algorithms
from ..algorithms.interface import Algorithm, Training
from ..base.config import KIND, Plain, build, build_kind, merge, parameters, plain
from ..base.errors import exists
from ..data import settings_for
from ..engines import Where
from ..models.choice import ModelChoice
from ..population import participation, partition
from ..population.participation import Dropout, Participation
from ..population.partition import Partition

SECTIONS = ("model", "partition", "participation", "delivery", "algorithm", "training")
KEPT_APART = ("rounds", "workers", "engine")
"""Settings that do not change what a round computes, so that a run may be gone on with under others."""

DEFAULTS: Plain = {
    "model": {KIND: "fashion-cnn"},
    "partition": {KIND: "pathological"},
    "participation": {KIND: "bernoulli"},
    "delivery": {KIND: "always"},
    "algorithm": {KIND: "rebafl"},
    "training": {},
}
"""With the parts' own defaults: the paper's main setting."""


@parameters
class Settings:
    """One run, whole."""

    dataset: Annotated[str, Field(description="a known name, or the path of own data")] = "fashion-mnist"
    rounds: Annotated[int, Field(ge=1, description="communication rounds (T)")] = 200
    seed: Annotated[int, Field(ge=0, lt=2**63, description="everything random follows from it")] = 0
    workers: Annotated[
        int, Field(ge=0, le=512, description="worker processes; 0: one a core. Never changes a result")
    ] = 0
    engine: Annotated[
        Where, Field(description="clients train in processes here, or as Ray tasks. Never changes a result")
    ] = "local"
    dropout: Annotated[Dropout, Field(description="a client that is not there was away, or its upload got lost")] = (
        "away"
    )
    model: ModelChoice
    partition: Partition
    participation: Participation
    delivery: Participation
    algorithm: Algorithm
    training: Training

    def plain(self) -> Plain:
        """All settings as plain values, complete and runnable again."""
        values = plain(self)
        values["algorithm"][KIND] = algorithms.kind_of(self.algorithm)
        return values

    def identity(self) -> Plain:
        """What decides the results of a round."""
        return {name: value for name, value in self.plain().items() if name not in KEPT_APART}

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the results, and of the files that settings point to."""
        total = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode())
        for part in (self.partition, self.participation, self.delivery):
            if path := getattr(part, "path", ""):
                total.update(Path(path).read_bytes() if exists(Path(path)) else b"")
        return total.hexdigest()

    @property
    def label(self) -> str:
        """A directory name that says what this is and differs when the settings do."""
        return f"{Path(self.dataset).stem}-{self.algorithm.name}-seed{self.seed}-{self.digest[:6]}"


def make_settings(*layers: Mapping[str, Any]) -> Settings:
    """Later layers win over earlier ones, and all over the paper's defaults for the data set."""
    chosen = merge(layers, SECTIONS)
    dataset = chosen.get("dataset", "fashion-mnist")
    paper = settings_for(dataset) if isinstance(dataset, str) else {}
    values = merge([DEFAULTS, paper, chosen], SECTIONS)
    parts = {
        "model": build(ModelChoice, values.pop("model"), "model"),
        "training": build(Training, values.pop("training"), "training"),
        "partition": build_kind(partition.KINDS, values.pop("partition"), "partition"),
        "participation": build_kind(participation.KINDS, values.pop("participation"), "participation"),
        "delivery": build_kind(participation.KINDS, values.pop("delivery"), "delivery"),
        "algorithm": build_kind(algorithms.known(values["algorithm"].get(KIND)), values.pop("algorithm"), "algorithm"),
    }
    return build(Settings, {**values, **parts})


def differences(old: Plain, new: Plain) -> list[str]:
    """The dotted names of settings that differ, with both values."""
    flat_old, flat_new = flatten(old), flatten(new)
    return [
        f"{name} is {flat_old.get(name, 'not set')!r} there, {flat_new.get(name, 'not set')!r} here"
        for name in {**flat_old, **flat_new}
        if flat_old.get(name) != flat_new.get(name)
    ]


def flatten(values: Mapping[str, Any], prefix: str = "") -> Plain:
    flat: Plain = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
