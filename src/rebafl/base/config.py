"""How do words in a file or on the command line become typed parameters?

Each part of the project declares its parameters as a frozen, validated dataclass (`parameters`); this
module merges layers of plain values and turns them into such objects, or says in one sentence which key
is wrong and what is allowed. It knows none of the parts.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar, cast

import pydantic
import tomli_w
from pydantic.dataclasses import dataclass as validated_dataclass
from typing_extensions import dataclass_transform

from .errors import UserError
from .reading import read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
Plain = dict[str, Any]
"""What TOML holds: strings, numbers, booleans, lists and tables."""

KIND = "kind"


@dataclasses.dataclass(frozen=True)
class Added:
    """Marks a key that came later, `Annotated[float, Field(…), Added(before=0.0)]`, or a whole section of settings.

    `before` is the value with which everything is computed as it was before the key came. While a key has it, the
    key is no part of what a result is identified by; settings stored without the key mean this value, whatever the
    default of new runs is.
    """

    before: Any


@dataclass_transform(frozen_default=True, kw_only_default=True)
def parameters(cls: type[T]) -> type[T]:
    """A class of named parameters: frozen, keyword-only, checked whenever one is made."""
    config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return cast("type[T]", validated_dataclass(cls, frozen=True, kw_only=True, config=config))


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Make a `cls` from plain values; `where` is the section's name, for the message."""
    known = [field.name for field in dataclasses.fields(cast(Any, cls))]
    for name in values:
        if name not in known:
            raise UserError(f"Unknown key {f'{where}.{name}'.strip('.')!r}{choices(name, known)}.")
    try:
        return cls(**{name: _frozen(value) for name, value in values.items()})
    except pydantic.ValidationError as error:
        raise UserError(_explain(error, cls, values, where)) from None


def declared(cls: type) -> dict[str, Any]:
    """The keys of a `parameters` class: pydantic's account of each, with its type, default and marks."""
    fields: dict[str, Any] = getattr(cls, "__pydantic_fields__", {})
    return fields


def added(cls: type) -> Plain:
    """The keys of a `parameters` class that came later, with the values that change nothing, as plain values."""
    fields = declared(cls).items()
    marks = {name: [mark for mark in field.metadata if isinstance(mark, Added)] for name, field in fields}
    return {name: _plain_value(found[0].before) for name, found in marks.items() if found}


def plain(thing: Any) -> Plain:
    """The parameters of an object as plain values; parts that have a name carry it as their `kind`."""
    values = {field.name: _plain_value(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
    name = getattr(thing, "name", None)
    return {KIND: name, **values} if isinstance(name, str) else values


def merge(layers: Iterable[Mapping[str, Any]], sections: Iterable[str]) -> Plain:
    """Later layers win, key by key. Naming another kind resets that section.

    `algorithm = "rebafl"` is short for `algorithm.kind = "rebafl"` wherever `sections` lists the key.
    """
    sections, merged = set(sections), {}
    for layer in layers:
        for name, value in layer.items():
            if name in sections and isinstance(value, str):
                value = {KIND: value}
            if not isinstance(value, Mapping):
                if name in sections:
                    raise UserError(f"{name} = {value!r}: give a name, or a table of settings.")
                merged[name] = value
                continue
            old = merged.get(name, {})
            fresh = not isinstance(old, Mapping) or value.get(KIND, old.get(KIND)) != old.get(KIND)
            merged[name] = dict(value) if fresh else {**old, **value}
    return merged


def read_toml(path: Path) -> Plain:
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise UserError(f"There is no settings file {path}.") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path} cannot be read as TOML: {error}.") from None


def write_toml(values: Mapping[str, Any]) -> str:
    return tomli_w.dumps(values)


def parse_assignments(words: Iterable[str]) -> Plain:
    """`["rounds=5", "partition.classes=2"]` to nested plain values; what is no TOML value is a string."""
    pairs = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not all(name.split(".")):
            raise UserError(f"{word!r} is not of the form KEY=VALUE, such as rounds=50.")
        pairs.append((name, _value(text)))
    return nested(pairs)


def nested(pairs: Iterable[tuple[str, Any]]) -> Plain:
    """`[("partition.clients", 5)]` as `{"partition": {"clients": 5}}`; later pairs win."""
    values: Plain = {}
    for name, value in pairs:
        *path, last = name.split(".")
        table = values
        for step in path:
            below = table.setdefault(step, {})
            if not isinstance(below, dict):  # algorithm=rebafl stood before algorithm.mu=0.1
                below = table[step] = {KIND: below}
            table = below
        if isinstance(table.get(last), dict):  # algorithm.mu=0.1 stood before algorithm=rebafl
            table[last][KIND] = value
        else:
            table[last] = value
    return values


def import_name(name: str, where: str) -> Any:
    """`module:attribute`, looked for on the path and in the current folder."""
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return getattr(importlib.import_module(module), attribute)
    except UserError as error:  # what was found wrong with it while it was defined
        raise UserError(f"{where}: {error}") from None
    except (Exception, SystemExit) as error:  # own code may fail in any way
        moved = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("rebafl.")
        hint = "; modules of rebafl moved: import what you need from rebafl itself" if moved else ""
        raise UserError(f"{where}: {name} cannot be imported ({type(error).__name__}: {error}){hint}.") from error


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    value = parsed["value"]
    return text if len(parsed) > 1 or isinstance(value, date | time | dict) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return plain(value) if dataclasses.is_dataclass(value) else value


def choices(word: str, allowed: Iterable[str]) -> str:
    """What is allowed in place of a word, and which of it is nearest, in whichever case the word is written."""
    names = sorted(allowed)
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), lower, n=1)
    return (f" (did you mean {lower[near[0]]!r}?)" if near else "") + f"; there are: {', '.join(names) or 'none'}"


def _explain(error: pydantic.ValidationError, cls: type, values: Mapping[str, Any], where: str) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    full = f"{where}.{name}".strip(".")
    if first["type"] in ("missing", "missing_keyword_only_argument"):
        return f"{full!r} must be given."
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    return f"{full} = {values[name]!r}: {reason}." if name in values else f"{where or cls.__name__}: {reason}."


@dataclasses.dataclass(frozen=True)
class Described:
    """One parameter, for people: its name, default and what it does within which range."""

    name: str
    default: str
    about: str


def describe(cls: type) -> list[Described]:
    """The parameters of a `parameters` class as they were declared."""
    schema = pydantic.TypeAdapter(cls).json_schema()
    required = set(schema.get("required", ()))
    return [
        Described(name, "(must be given)" if name in required else str(entry.get("default")), _about(entry))
        for name, entry in schema.get("properties", {}).items()
    ]


def _about(entry: Mapping[str, Any]) -> str:
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    typed = next((option for option in entry.get("anyOf", ()) if "type" in option), entry)
    limits = [f"{sign} {typed[key]:g}" for key, sign in bounds.items() if key in typed]
    if "enum" in entry:
        limits = [" or ".join(map(str, entry["enum"]))]
    return "; ".join([str(entry.get("description", "")), ", ".join(limits)]).strip("; ")
