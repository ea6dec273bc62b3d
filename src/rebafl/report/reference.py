"""What can be set, and to what? The settings' own declarations as one Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..algorithms.interface import Training
from ..base.config import describe
from ..models.choice import ModelChoice
from ..population import participation, partition
from ..runs.settings import SECTIONS, Settings


def settings_page() -> str:
    """All settings but the algorithms', which have pages of their own."""
    top = [each for each in describe(Settings) if each.name not in SECTIONS]
    parts = ["### The run\n\n" + _table([(each.name, each.default, each.about) for each in top])]
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
    return _table([(f"{section}.{each.name}", each.default, each.about) for each in describe(kind)])


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = [(f"`{key}`", default, about) for key, default, about in rows]
    return markdown_table(("key", "default", "meaning"), cells) if rows else ""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells may hold any text."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
