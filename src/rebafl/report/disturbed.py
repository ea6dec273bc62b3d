"""What was left of a federation whose machines were killed all the time? The account of one such run, for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .reference import markdown_table


def account(found: Mapping[str, Any]) -> str:
    """What `make chaos` wrote down."""
    killed = [name for _, name, _ in found["deaths"]]
    victims = sorted({name for name in killed if name != "server"})
    back = len(found["returned"])
    rows = [
        ("rounds", str(found["rounds"])),
        ("seconds in all; the slowest round", f"{found['seconds']:.0f}; {found['slowest_round']:.0f}"),
        ("nodes killed with SIGKILL and started again", f"{len(killed) - killed.count('server')} times"),
        ("nodes hit; of these, how many took part again before the end", f"{len(victims)}; {back}"),
        ("server killed with SIGKILL and started again", str(killed.count("server"))),
        ("finished rounds lost", str(found["lost_rounds"])),
        ("replies that did not come before the deadline", str(found["missing_replies"])),
        ("rounds in which the poisoned client was refused", str(found["refused"])),
        ("rounds that left the model as it was", str(found["without_update"])),
        ("accuracy at the end", f"{found['accuracy']:.1f} %"),
        ("accuracy of the simulator, undisturbed and unpoisoned", f"{found['undisturbed']:.1f} %"),
    ]
    return markdown_table(("", "measured"), rows)
