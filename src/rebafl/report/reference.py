"""What can be set, and which algorithms are there? Their own declarations as Markdown, for the pages in docs/."""

from __future__ import annotations

from collections.abc import Mapping

from ..algorithms import KINDS as ALGORITHMS
from ..algorithms.interface import Algorithm
from ..base.config import describe
from ..runs.settings import KINDS, SECTIONS, TYPES, Settings
from .markdown import markdown_table


def pages() -> dict[str, str]:
    """The generated part of every page below docs/ that describes settings or algorithms."""
    cards = {f"algorithms/{name}.md": algorithm_card(kind) for name, kind in ALGORITHMS.items()}
    return {"algorithms/README.md": algorithms_table(), "settings.md": settings_page(), **cards}


def first_line(kind: type[Algorithm]) -> str:
    """An algorithm in one sentence."""
    return (kind.__doc__ or "It has no docstring.").splitlines()[0]


def algorithm_card(kind: type[Algorithm]) -> str:
    """One algorithm as Markdown: its paper, what it costs beyond FedAvg, and its parameters."""
    costs = kind.costs
    facts = f"client state: {costs.state}; communication: {costs.communication}; compute: {costs.compute}"
    text = f"Paper: {kind.paper}\n\nBeyond FedAvg: {facts}."
    rows = [(f"`algorithm.{field.name}`", field.default, field.about) for field in describe(kind)]
    return f"{text}\n\n{markdown_table(('parameter', 'default', 'what it does'), rows)}" if rows else text


def algorithms_table() -> str:
    """All algorithms in one Markdown table."""
    header = ("name", "in one sentence", "client state", "extra communication", "extra compute")
    rows = [
        (f"[{name}]({name}.md)", first_line(kind), kind.costs.state, kind.costs.communication, kind.costs.compute)
        for name, kind in ALGORITHMS.items()
    ]
    return markdown_table(header, rows)


def settings_page() -> str:
    """All settings but the algorithms', which have pages of their own."""
    top = [field for field in describe(Settings) if field.name not in SECTIONS]
    parts = ["### The run\n\n" + _table([(field.name, field.default, field.about) for field in top])]
    for section, title in _titles().items():
        rows = _kinds(section, KINDS[section]) if section in KINDS else _rows(section, TYPES[section])
        parts.append(f"### {title}\n\n{rows}")
    return "\n\n".join(parts)


def _titles() -> dict[str, str]:
    """Sections of one type share a table; each by its first name."""
    alike = {type_: [name for name in SECTIONS if TYPES[name] is type_] for type_ in TYPES.values()}
    return {names[0]: " and ".join(f"`{n}`" for n in names) for names in alike.values() if names != ["algorithm"]}


def _kinds(section: str, kinds: Mapping[str, type]) -> str:
    return "\n\n".join(
        f"**`{section}={name}`**: {' '.join((kind.__doc__ or '').split())}\n\n{_rows(section, kind)}".rstrip()
        for name, kind in kinds.items()
    )


def _rows(section: str, kind: type) -> str:
    return _table([(f"{section}.{field.name}", field.default, field.about) for field in describe(kind)])


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = [(f"`{key}`", default, about) for key, default, about in rows]
    return markdown_table(("key", "default", "meaning"), cells) if rows else ""
