"""What does a federation lose whose machines are killed all the time? One such run, measured, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .markdown import markdown_table


def chaos_table(measured: Mapping[str, Any]) -> str:
    """What `make chaos` measured."""
    killed = [name for _, name, _ in measured["deaths"]]
    victims = sorted({name for name in killed if name != "server"})
    returned = len(measured["returned"])
    rows = [
        ("rounds", str(measured["rounds"])),
        ("seconds in all; the slowest round", f"{measured['seconds']:.0f}; {measured['slowest_round']:.0f}"),
        ("nodes killed with SIGKILL and started again", f"{len(killed) - killed.count('server')} times"),
        ("nodes hit; of these, how many took part again before the end", f"{len(victims)}; {returned}"),
        ("server killed with SIGKILL and started again", str(killed.count("server"))),
        ("finished rounds lost", str(measured["lost_rounds"])),
        ("replies that did not come before the deadline", str(measured["missing_replies"])),
        ("rounds in which the poisoned client was refused", str(measured["refused"])),
        ("rounds that left the model as it was", str(measured["without_update"])),
        ("accuracy at the end", f"{measured['accuracy']:.1f} %"),
        ("accuracy of the simulator, undisturbed and unpoisoned", f"{measured['undisturbed']:.1f} %"),
    ]
    return markdown_table(("", "measured"), rows)
