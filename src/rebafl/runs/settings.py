"""What is one run? All its settings, typed; how layers of plain values become them, and what may change later.

A setting can be added without orphaning older results: mark its key with `Added(before=…)`, the value with which
everything is computed as before. While the key has that value it is no part of `identity`, `digest` and `label`, and
stored settings that lack the key mean that value (`complete`). A key that is renamed is entered in `RENAMED`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from .. import algorithms
from ..algorithms import robust
from ..algorithms.interface import Algorithm, Training
from ..algorithms.rebafl import ReBaFL
from ..algorithms.robust import Defence, NoDefence
from ..base.config import KIND, Added, Plain, added, build, declared, merge, nested, parameters, plain
from ..base.errors import UserError, exists
from ..base.kinds import Kinds
from ..base.reading import located, read_bytes
from ..engines import Where
from ..models.choice import ModelChoice
from ..population import participation, splitting
from ..population.participation import Always, Bernoulli, Dropout, Participation
from ..population.partition import Partition, Pathological
from ..training import attacks
from ..training.attacks import Attack, NoAttack
from ..training.device import known_device
from ..training.protections import Protections
from .early_stop import EarlyStop
from .scoring import Evaluate

KEPT_APART = ("rounds", "workers", "engine", "keep_prototypes", "log", "stop")
"""Settings that do not change what a round computes, so that a run may be resumed under others."""

LOGGERS = ("tensorboard", "mlflow", "wandb")
"""Places where rounds can be written besides the record."""

RENAMED: dict[str, str] = {}
"""Old name -> new name of every key that was ever renamed, each as KEY, SECTION.KEY or, for a key that only one kind
has, SECTION.KIND.KEY: `{"training.learning_rate": "training.lr", "algorithm.moon.weight": "algorithm.moon.mu"}`.

Old names are understood everywhere; results keep the digest and the label that they have under the first name.
"""

OF_THE_PAPER: dict[str, Plain] = {
    name: {"model": {KIND: "cifar-cnn"}, "training": {"lr": 0.02, "transform": "crop-flip"}}
    for name in ("cifar-10", "cifar-mini")
}
"""By data set: what the paper uses for it where that differs from the defaults, which are those of Fashion-MNIST."""


def known_loggers(text: str) -> str:
    """Refuse names that are none."""
    for name in text.split(",") if text else ():
        if name not in LOGGERS:
            raise ValueError(f"there is no logger {name!r}; there are: {', '.join(LOGGERS)}")
    return text


Chance = Literal["split", "dropout", "init", "order"]
"""What is random in a run: who holds what; who takes part and what arrives; the first model; all of training."""

OwnSeed = Annotated[int, Field(ge=-1, lt=2**63), Added(before=-1)]


@parameters
class Seeds:
    """A seed of its own for a part of what is random; -1: that part follows from `seed`, as all do by default."""

    split: Annotated[OwnSeed, Field(description="who holds what; -1: `seed`")] = -1
    dropout: Annotated[OwnSeed, Field(description="who takes part, and whose upload arrives; -1: `seed`")] = -1
    init: Annotated[OwnSeed, Field(description="the first model; -1: `seed`")] = -1
    order: Annotated[OwnSeed, Field(description="order of samples, and all else in training; -1: `seed`")] = -1


@parameters
class Settings:
    """One run, whole. With all defaults: the paper's main setting."""

    dataset: Annotated[str, Field(description="a known name, the path of own data, or module:function")] = (
        "fashion-mnist"
    )
    rounds: Annotated[int, Field(ge=1, description="communication rounds (T)")] = 200
    seed: Annotated[int, Field(ge=0, lt=2**63, description="everything random follows from it")] = 0
    workers: Annotated[
        int, Field(ge=0, le=512, description="worker processes; 0: one per core. Never changes a result")
    ] = 0
    engine: Annotated[
        Where, Field(description="clients train in processes here, or as Ray tasks. Never changes a result")
    ] = "local"
    dropout: Annotated[Dropout, Field(description="a client that is not there was away, or its upload got lost")] = (
        "away"
    )
    keep_prototypes: Annotated[
        bool,
        Field(description="write down each round's prototypes, for `rebafl ui`. Never changes a result"),
        Added(before=False),
    ] = False
    log: Annotated[
        str,
        AfterValidator(known_loggers),
        Field(description="where else rounds are written: tensorboard, mlflow, wandb, with commas between"),
        Added(before=""),
    ] = ""
    resize: Annotated[
        int,
        Field(ge=0, le=4096, description="pixels a side that images are brought to; 0: they stay as they are"),
        Added(before=0),
    ] = 0
    validation: Annotated[
        float,
        Field(ge=0, lt=1, description="share of the training data held out to choose a model on; 0: none, the paper's"),
        Added(before=0.0),
    ] = 0.0
    device: Annotated[
        str,
        AfterValidator(known_device),
        Field(description="where clients train: cpu, cuda, cuda:N, mps, or auto; bits are promised on the cpu only"),
        Added(before="cpu"),
    ] = "cpu"
    model: ModelChoice = ModelChoice()
    partition: Partition = Pathological()
    participation: Participation = Bernoulli()
    delivery: Participation = Always()
    algorithm: Algorithm = ReBaFL()
    training: Training = Training()
    protect: Annotated[Protections, Added(before=Protections())] = Protections()
    robust: Annotated[Defence, Added(before=NoDefence())] = NoDefence()
    attack: Annotated[Attack, Added(before=NoAttack())] = NoAttack()
    stop: Annotated[EarlyStop, Added(before=EarlyStop())] = EarlyStop()
    seeds: Annotated[Seeds, Added(before=Seeds())] = Seeds()
    evaluate: Annotated[Evaluate, Added(before=Evaluate())] = Evaluate()

    def seed_of(self, part: Chance) -> int:
        """The seed that a part of what is random follows from."""
        own: int = getattr(self.seeds, part)
        return self.seed if own < 0 else own

    def plain(self) -> Plain:
        """All settings as plain values, complete and runnable again."""
        values = plain(self)
        for name, kinds in KINDS.items():
            values[name][KIND] = kinds.kind_of(type(getattr(self, name)))
        return values

    def identity(self) -> Plain:
        """What decides the results of a round, without later keys that change nothing, under the first names."""
        values = _without(apart_from_kept(self.plain()), added(Settings))
        for name in values.keys() & SECTIONS:
            values[name] = _without(values[name], added(type(getattr(self, name))))
        return _renamed(values, {new: old for old, new in RENAMED.items()})

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the results, and of the files that settings point to."""
        total = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode())
        for part in (self.partition, self.participation, self.delivery):
            if path := getattr(part, "path", ""):
                total.update(_content(located(path)))
        return total.hexdigest()

    @property
    def label(self) -> str:
        """A directory name that says what this is and differs when the settings do."""
        own = re.fullmatch(r"[\w.]+:(\w+)", self.dataset)
        path = self.dataset.partition("?")[0] if self.dataset.startswith("hf:") else self.dataset
        data = own[1] if own else Path(path).stem
        return f"{data}-{self.algorithm.name}-seed{self.seed}-{self.digest[:6]}"


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path) if exists(path) else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None


_fields = declared(Settings)
TYPES: dict[str, Any] = {n: field.annotation for n, field in _fields.items() if is_dataclass(field.annotation)}
"""Those settings that are tables of settings themselves, and what is made of each."""

SECTIONS = tuple(TYPES)
_SECTION_TYPES = tuple(TYPES.values())

_KINDS_OF: dict[Any, Kinds[Any]] = {
    Partition: splitting.KINDS,
    Participation: participation.KINDS,
    Algorithm: algorithms.KINDS,
    Defence: robust.KINDS,
    Attack: attacks.KINDS,
}
KINDS = {name: _KINDS_OF[type_] for name, type_ in TYPES.items() if type_ in _KINDS_OF}
"""Of those sections whose keys depend on their kind, the kinds there are."""

_DEFAULTS: Plain = {name: {k: v for k, v in plain(_fields[name].default).items() if k == KIND} for name in SECTIONS}


def make_settings(*layers: Mapping[str, Any]) -> Settings:
    """Later layers win over earlier ones, and all over the paper's defaults for the data set.

    Keys may be dotted, `{"algorithm.mu": 0.5}`, and a section may be an object, `{"algorithm": FedProx(mu=0.1)}`.
    """
    chosen = merge(_up_to_date(tuple(_spelled_out(layer) for layer in layers)), SECTIONS)
    dataset = chosen.get("dataset", _fields["dataset"].default)
    paper = OF_THE_PAPER.get(dataset, {}) if isinstance(dataset, str) else {}
    values = merge([_DEFAULTS, paper, chosen], SECTIONS)
    parts = {name: _section(name, values.pop(name)) for name in SECTIONS}
    for name in values:
        if name not in _fields and (sections := [part for part in SECTIONS if name in declared(type(parts[part]))]):
            raise UserError(f"Unknown key {name!r}; did you mean {f'.{name} or '.join(sections)}.{name}?")
    return build(Settings, {**values, **parts})


def _spelled_out(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A layer whose dotted keys are tables, and whose objects are plain values."""
    objects = {name: _table_of(name, value) for name, value in layer.items() if isinstance(value, _SECTION_TYPES)}
    layer = {**layer, **objects}
    if not any("." in name for name in layer):
        return layer
    pairs = [
        (f"{name}.{key}", inner)
        for name, value in layer.items()
        for key, inner in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]
    return nested((name.rstrip("."), value) for name, value in pairs)


def _table_of(name: str, part: Any) -> Plain:
    kinds = KINDS.get(name)
    return {**plain(part), **({KIND: kinds.kind_of(type(part))} if kinds else {})}


def _section(name: str, values: Plain) -> Any:
    if name not in KINDS:
        return build(TYPES[name], values, name)
    rest = dict(values)
    return build(KINDS[name].find(rest.pop(KIND), name), rest, name)


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """The settings that a run or result was computed with, by whatever version."""
    return make_settings(complete(stored))


def resumed_settings(stored: Mapping[str, Any], *asked: Mapping[str, Any]) -> Settings:
    """The settings asked for, to resume a run with: of keys that came later and are not asked for, the run's own.

    A script that is run again after the keys were added means what it meant before.
    """
    wanted = make_settings(*asked)
    values = complete(stored, wanted)
    beneath = {name: before for name, before in added(Settings).items() if values.get(name) == before}
    for name in SECTIONS:
        neutral, table = added(type(getattr(wanted, name))), values.get(name)
        if neutral and isinstance(table, Mapping) and table.get(KIND) == wanted.plain()[name].get(KIND):
            own = {key: before for key, before in neutral.items() if table.get(key) == before}
            beneath[name] = {KIND: table[KIND], **own} if KIND in table else own
    return make_settings(beneath, *asked)


def complete(stored: Mapping[str, Any], known: Settings | None = None) -> Plain:
    """Stored settings, of a run or a result file, as this version would have written them.

    Keys that were renamed have their new names, and keys that came later the values that change nothing. Nothing is
    imported for that: sections of a kind that is own code stay as they are, but for those that `known` has, too.
    """
    values = _renamed(stored, RENAMED)
    for name in SECTIONS:
        table = values.get(name)
        if isinstance(table, Mapping) and (cls := _class_of(name, table.get(KIND), known)):
            values[name] = {**table, **{key: value for key, value in added(cls).items() if key not in table}}
    return {**values, **{name: value for name, value in added(Settings).items() if name not in values}}


def apart_from_kept(values: Mapping[str, Any]) -> Plain:
    """Without those settings that may differ when a run is resumed."""
    return {name: value for name, value in values.items() if name not in KEPT_APART}


def _class_of(section: str, kind: object, known: Settings | None) -> type | None:
    if section not in KINDS:
        cls: type = TYPES[section]
        return cls
    kinds = KINDS[section]
    if isinstance(kind, str) and kind in kinds:
        cls = kinds[kind]
        return cls
    own = type(getattr(known, section)) if known else None
    return own if own and kinds.kind_of(own) == kind else None


def _without(values: Plain, neutral: Plain) -> Plain:
    """Without those that have the values that change nothing."""
    return {name: value for name, value in values.items() if name not in neutral or value != neutral[name]}


def _up_to_date(layers: tuple[Mapping[str, Any], ...]) -> list[Plain]:
    """The layers with new names for old ones, which may depend on the kind that an earlier layer chose."""
    kinds, result = {name: table.get(KIND) for name, table in _DEFAULTS.items()}, []
    for layer in layers:
        for name in SECTIONS:
            value = layer.get(name)
            kinds[name] = value.get(KIND, kinds[name]) if isinstance(value, Mapping) else value or kinds[name]
        result.append(_renamed(layer, RENAMED, kinds))
    return result


def _renamed(values: Mapping[str, Any], names: Mapping[str, str], kinds: Mapping[str, Any] | None = None) -> Plain:
    """With other names for some keys; `kinds` says which kind a section is of that does not say so itself."""
    result = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for old in names:
        new = names[old]
        while new in names:  # renamed more than once
            new = names[new]
        *section, key = old.split(".")
        table = _table(result, section, kinds or {})
        if table is None or key not in table:
            continue
        value = table.pop(key)
        *section, key = new.split(".")
        table = result if not section else result.setdefault(section[0], {})
        if not isinstance(table, dict):
            table = result[section[0]] = {KIND: table}
        if key in table:
            raise UserError(f"{old} is called {new} now; give one of them.")
        table[key] = value
    return result


def _table(values: Plain, section: list[str], kinds: Mapping[str, Any]) -> Plain | None:
    """The table that a key is in, if it is there and of the kind that is meant."""
    if not section:
        return values
    table = values.get(section[0])
    if not isinstance(table, dict) or (section[1:] and section[1:] != [table.get(KIND, kinds.get(section[0]))]):
        return None
    return table


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
