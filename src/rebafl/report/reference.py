"""What can be set, and to what? The settings' own declarations as one Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..base.config import describe
from ..runs.settings import KINDS, SECTIONS, TYPES, Settings


def settings_page() -> str:
    """All settings but the algorithms', which have pages of their own."""
    top = [each for each in describe(Settings) if each.name not in SECTIONS]
    parts = ["### The run\n\n" + _table([(each.name, each.default, each.about) for each in top])]
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
    return _table([(f"{section}.{each.name}", each.default, each.about) for each in describe(kind)])


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = [(f"`{key}`", default, about) for key, default, about in rows]
    return markdown_table(("key", "default", "meaning"), cells) if rows else ""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells may hold any text."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
