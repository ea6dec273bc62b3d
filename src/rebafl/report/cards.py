"""What is there to know of each algorithm at a glance? The same facts for the command and for the documents."""

from __future__ import annotations

from ..algorithms import KINDS
from ..algorithms.interface import Algorithm
from ..base.config import describe
from .reference import markdown_table, settings_page

START, END = "<!-- generated: card -->", "<!-- end -->"


def first_line(kind: type[Algorithm]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def card(kind: type[Algorithm]) -> str:
    """One algorithm as Markdown: its paper, what it costs beyond FedAvg, and its parameters."""
    costs = kind.costs
    facts = f"client state: {costs.state}; communication: {costs.communication}; compute: {costs.compute}"
    text = f"Paper: {kind.paper}\n\nBeyond FedAvg: {facts}."
    rows = [(f"`algorithm.{each.name}`", each.default, each.about) for each in describe(kind)]
    return f"{text}\n\n{markdown_table(('parameter', 'default', 'what it does'), rows)}" if rows else text


def overview() -> str:
    """All algorithms in one Markdown table."""
    header = ("name", "in one sentence", "client state", "extra communication", "extra compute")
    rows = [
        (f"[{name}]({name}.md)", first_line(kind), kind.costs.state, kind.costs.communication, kind.costs.compute)
        for name, kind in KINDS.items()
    ]
    return markdown_table(header, rows)


def pages() -> dict[str, str]:
    """The generated part of every page below docs/."""
    cards = {f"algorithms/{name}.md": card(kind) for name, kind in KINDS.items()}
    return {"algorithms/README.md": overview(), "settings.md": settings_page(), **cards}


def placed(page: str, text: str) -> str:
    """A page with the part between the two marks replaced."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{text}\n{END}{after}"
