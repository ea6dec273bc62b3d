"""What can be set, and which algorithms are there? Their own declarations as Markdown, for the pages in docs/."""

from __future__ import annotations

from collections.abc import Mapping

from ..algorithms import KINDS
from ..algorithms.interface import Algorithm, Training
from ..base.config import describe
from ..models.choice import ModelChoice
from ..population import participation, partition
from ..runs.settings import SECTIONS, Settings
from .markdown import markdown_table


def pages() -> dict[str, str]:
    """The generated part of every page below docs/ that describes settings or algorithms."""
    cards = {f"algorithms/{name}.md": algorithm_card(kind) for name, kind in KINDS.items()}
    return {"algorithms/README.md": algorithms_table(), "settings.md": settings_page(), **cards}


def first_line(kind: type[Algorithm]) -> str:
    """An algorithm in one sentence."""
    return (kind.__doc__ or "").splitlines()[0]


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
        for name, kind in KINDS.items()
    ]
    return markdown_table(header, rows)


def settings_page() -> str:
    """All settings but the algorithms', which have pages of their own."""
    top = [field for field in describe(Settings) if field.name not in SECTIONS]
    parts = ["### The run\n\n" + _table([(field.name, field.default, field.about) for field in top])]
    parts.append("### `training`\n\n" + _rows("training", Training))
    parts.append("### `model`\n\n" + _rows("model", ModelChoice))
    parts.append("### `partition`\n\n" + _kinds("partition", partition.KINDS))
    parts.append("### `participation` and `delivery`\n\n" + _kinds("participation", participation.KINDS))
    return "\n\n".join(parts)


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
