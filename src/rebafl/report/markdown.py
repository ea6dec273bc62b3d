"""How is something written into a Markdown page? As a table, or in place of the part that is generated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TextTable = tuple[Sequence[str], list[Sequence[str]]]
"""A header, and rows of as many cells."""
START, END = "<!-- generated: card -->", "<!-- end -->"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells may hold any text."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_generated(page: str, text: str) -> str:
    """A page with the part between the two marks replaced. Raises `ValueError` unless both are there, once."""
    if (page.count(START), page.count(END)) != (1, 1) or page.index(START) > page.index(END):
        raise ValueError(f"it must hold {START!r} once and {END!r} once after it")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{text}\n{END}{after}"
