"""What does the SuperLink know? Its nodes, asked for from the machine it runs on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ..flower_changes import ControlApi, control_api
from ..machine_secret import read_secret


@dataclass(frozen=True)
class Link:
    """A SuperLink on this machine, and the folder of its server."""

    address: str
    server: Path

    def control(self) -> AbstractContextManager[ControlApi]:
        return control_api(self.address, (self.server / "ca.crt").read_bytes(), read_secret(self.server))


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
        refused = []
        for number in [number for number, key in allowed.items() if key not in known]:
            try:
                control.register(allowed[number], f"client-{number}")
            except httpx.HTTPStatusError:
                refused.append(str(number))
    if refused:
        raise UserError(
            f"Flower does not take the keys of clients {', '.join(refused)}: a key that was removed once cannot come "
            "back; make new ones with: rebafl federation rotate-key K"
        )


def registered_keys(link: Link) -> set[bytes] | None:
    """The public keys that the SuperLink lets in; None if it does not answer."""
    nodes = _nodes(link)
    return None if nodes is None else {bytes(node.public_key) for node in nodes if node.status != "unregistered"}


def connected(link: Link, allowed: Mapping[int, bytes]) -> dict[int, bool] | None:
    """Client number -> does its node answer the SuperLink? None if the SuperLink itself does not."""
    if (nodes := _nodes(link)) is None:
        return None
    online = {bytes(node.public_key) for node in nodes if node.status == "online"}
    return {number: key in online for number, key in allowed.items()}


def _nodes(link: Link) -> list[Any] | None:
    import httpx  # comes with Flower

    try:
        with link.control() as control:
            return control.nodes()
    except (httpx.HTTPError, UserError):
        return None
