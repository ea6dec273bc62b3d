"""How does a person read what protections cost and gain? As one table, in HTML or in whatever a caller makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .curves import CLIENT, SERVER
from .html import STYLE
from .parts.tracing import BROADCAST, REST, SUM, UPLOAD

HEADER = (
    "words", "accuracy by seed", "mean", "ε", "server traces what it gets", "fake members",
    "client traces the broadcast", "… minus its own share", "server, means of 10", "means of 100",
    "linked (guessing)", "held classes told", "membership by the weights: server", "client",
    "singly to the server", "to clients",
)  # fmt: skip
NOTE = (
    "Accuracy is the mean of the last ten rounds. Tracing cells: AUC with its 95% interval over the clients of all "
    "seeds, and TPR at the stated FPR; the attacker knows the bound and the noise; fake members are the negative "
    "control. Linking: how often a client is found again among shuffled uploads. Membership: AUC by the difference of "
    "the loss (simple scores, not LiRA). The last two columns count prototypes of single clients over all rounds and "
    "seeds. “–”: there is nothing of that kind to attack."
)


def table_of(result: Mapping[str, Any]) -> list[list[str]]:
    """One row of texts for each protection."""
    return [_cells(row) for row in result["rows"]]


def _cells(row: Mapping[str, Any]) -> list[str]:
    found = row["attacks"]

    def traced(*names: str) -> str:
        name = next((one for one in names if f"{one} AUC" in found), "")
        if not name:
            return "–"
        return f"{_interval(found[f'{name} AUC'])} TPR {found[f'{name} TPR']['value']:.3f}"

    def plain(name: str) -> str:
        return _interval(found[name]) if name in found and found[name]["units"] else "–"

    chance = row["chance_of_linking"]
    links = f"{plain('linked by both')} ({chance:.2f})" if chance is not None else "–"
    return [
        " ".join(row["words"]) or "none",
        ", ".join(f"{one:.1f}" for one in row["accuracies"]),
        f"{row['accuracy']:.1f}",
        "" if row["epsilon"] is None else f"{row['epsilon']:.3g}",
        traced(f"{SERVER} {UPLOAD}", f"{SERVER} {SUM}"),
        plain(f"{SERVER} {UPLOAD} fakes" if f"{SERVER} {UPLOAD} fakes" in found else f"{SERVER} {SUM} fakes"),
        traced(f"{CLIENT} {BROADCAST}"),
        traced(f"{CLIENT} {REST}"),
        traced(f"{SERVER} k=10"),
        traced(f"{SERVER} k=100"),
        links,
        plain("held classes"),
        plain(f"{SERVER} membership by loss difference"),
        plain(f"{CLIENT} membership by loss difference"),
        str(row["single_to_server"]),
        str(row["handed_to_clients"]),
    ]


def _interval(value: Mapping[str, Any]) -> str:
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def trade_page(result: Mapping[str, Any], words: Sequence[str]) -> str:
    """The whole table as one page that needs nothing else."""
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADER)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in table_of(result)
    )
    seeds = ", ".join(map(str, result["seeds"]))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Protections</title>'
        f"<style>{STYLE} body {{ max-width: none }}</style></head><body>"
        "<h1>What protections cost, and what they gain</h1>"
        f"<p>Every row: {escape(' '.join(words))}, seeds {seeds}. {escape(NOTE)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></body></html>\n"
    )
