"""What does the SuperLink know? Its nodes, asked for from the machine it runs on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ..flower_changes import ControlApi, control_api


@dataclass(frozen=True)
class Link:
    """A SuperLink on this machine."""

    address: str
    authority: Path

    def control(self) -> AbstractContextManager[ControlApi]:
        return control_api(self.address, self.authority.read_bytes())


def register(link: Link, allowed: Mapping[int, bytes]) -> None:
    """Make the SuperLink know the allowed keys and no other, as soon as it answers."""
    import httpx  # comes with Flower

    with link.control() as control:
        while True:
            try:
                nodes = control.nodes()
                break
            except httpx.TransportError:
                time.sleep(0.2)
        known = {bytes(node.public_key): node.node_id for node in nodes if node.status != "unregistered"}
        for key in known.keys() - set(allowed.values()):
            control.unregister(known[key])
        for number, key in allowed.items():
            if key not in known:
                control.register(key, f"client-{number}")


def connected(link: Link, allowed: Mapping[int, bytes]) -> dict[int, bool] | None:
    """Client number -> does its node answer the SuperLink? None if the SuperLink itself does not."""
    import httpx  # comes with Flower

    try:
        with link.control() as control:
            nodes = control.nodes()
    except httpx.HTTPError:
        return None
    online = {bytes(node.public_key) for node in nodes if node.status == "online"}
    return {number: key in online for number, key in allowed.items()}
