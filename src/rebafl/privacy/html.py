"""What is every page of this room made of? Tables, intervals, lists, and one look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from .verdicts import LEAKS, NO_LEAK, TOO_WEAK

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px }
td, th { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
th { background: #f4f4f4 }
.leaks { color: #a40000; font-weight: 600 }
.none { color: #006400; font-weight: 600 }
.weak { color: #8a5a00; font-weight: 600 }
svg, img { max-width: 100%; height: auto }
"""
LOOKS: dict[str, str] = {LEAKS: "leaks", NO_LEAK: "none", TOO_WEAK: "weak"}


def interval(value: Mapping[str, Any]) -> str:
    if not value["units"]:
        return "–"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    look = LOOKS.get(value) if isinstance(value, str) else None
    return f'<td class="{look}">{escape(str(value))}</td>' if look else f"<td>{escape(str(value))}</td>"


def bullets(items: Iterable[object]) -> str:
    return "<ul>" + "".join(f"<li>{escape(str(item))}</li>" for item in items) + "</ul>"


def facts_table(facts: Mapping[str, Any]) -> str:
    return table(("fact", "value"), ((name.replace("_", " "), value) for name, value in facts.items()))
