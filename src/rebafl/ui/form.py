"""Which settings can be chosen in the form that starts a run? All that are declared, as they are declared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pydantic

from ..base.config import KIND, Plain, describe, parse_assignments
from ..base.errors import UserError
from ..data import KNOWN, check_name
from ..models.choice import KINDS as MODELS
from ..runs.settings import KINDS, SECTIONS, TYPES, Settings, make_settings

KEY = re.compile(r"[a-z_]+(\.[a-z_][a-z_0-9]*)?")
OWN_CODE = "runs own code, which this page does not do; start it with: rebafl ui --own-code"


def form() -> Plain:
    """The form: single settings, and sections whose keys depend on their kind."""
    top = [field for field in _fields(Settings, "") if field["name"] not in SECTIONS]
    for field in top:
        if field["name"] == "dataset":
            field["suggestions"] = sorted(KNOWN)
    return {"top": top, "sections": [_section(name) for name in SECTIONS]}


def _section(name: str) -> Plain:
    default = make_settings().plain()[name]
    if name in KINDS:
        kinds = {
            kind: {"about": (cls.__doc__ or "").splitlines()[0], "fields": _fields(cls, name)}
            for kind, cls in KINDS[name].items()
        }
        return {"name": name, "kind": default[KIND], "kinds": kinds}
    fields = _fields(TYPES[name], name)
    for field in fields:
        if field["name"] == "model.kind":
            field["suggestions"] = sorted(MODELS)
    return {"name": name, "kind": None, "kinds": {"": {"about": "", "fields": fields}}}


def _fields(cls: type, section: str) -> list[Plain]:
    entries: Mapping[str, Any] = pydantic.TypeAdapter(cls).json_schema().get("properties", {})
    prefix = f"{section}." if section else ""
    return [
        {
            "name": prefix + field.name,
            "default": _word(entries[field.name].get("default")),
            "about": field.about,
            "choices": entries[field.name].get("enum") or (_yes_no(entries[field.name])),
            "suggestions": [],
        }
        for field in describe(cls)
    ]


def _yes_no(entry: Mapping[str, Any]) -> list[str]:
    return ["false", "true"] if entry.get("type") == "boolean" else []


def _word(value: Any) -> str:
    """As one would type it on the command line."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked_words(words: Mapping[str, Any], own_code: bool) -> tuple[list[str], Settings]:
    """What the form sent as words of `rebafl run`, if a run can be made of them."""
    for key, value in words.items():
        if not KEY.fullmatch(key) or not isinstance(value, str):
            raise UserError(f"{key!r} is no setting.")
    assigned = [f"{key}={value}" for key, value in words.items() if value != ""]
    values = parse_assignments(assigned)
    if not own_code:
        refuse_own_code(values)
    settings = make_settings(values)
    check_name(settings.dataset)
    return assigned, settings


def refuse_own_code(values: Mapping[str, Any]) -> None:
    """Nothing is imported that a form, or a stored run, names as `module:Class`."""
    for name in ("dataset", *SECTIONS):
        value = values.get(name)
        kind = value.get(KIND) if isinstance(value, Mapping) else value
        if isinstance(kind, str) and ":" in kind:
            raise UserError(f"{name}={kind} {OWN_CODE}")
