"""What does the SuperLink know? Its Control API, spoken from the machine it runs on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Link:
    """A SuperLink on this machine."""

    address: str
    authority: Path

    @contextmanager
    def client(self) -> Iterator[Any]:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperLink")]
        authority = self.authority.read_bytes()
        client = ControlHttpClient.from_server_address(self.address, False, authority, interceptors)
        try:
            yield client
        finally:
            client.close()


def register(link: Link, allowed: Mapping[int, bytes]) -> None:
    """Make the SuperLink know the allowed keys and no other, as soon as it answers."""
    import httpx
    from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest

    with link.client() as client:
        while True:
            try:
                listed = client.ListNodes(ListNodesRequest()).nodes_info
                break
            except httpx.TransportError:
                time.sleep(0.2)
        known = {bytes(node.public_key): node.node_id for node in listed if node.status != "unregistered"}
        for key in known.keys() - set(allowed.values()):
            client.UnregisterNode(UnregisterNodeRequest(node_id=known[key]))
        for number, key in allowed.items():
            if key not in known:
                client.RegisterNode(RegisterNodeRequest(public_key=key, name=f"client-{number}"))


def connected(link: Link, allowed: Mapping[int, bytes]) -> dict[int, bool] | None:
    """Client number -> does its node answer the SuperLink? None if the SuperLink itself does not."""
    import httpx
    from flwr.proto.control_pb2 import ListNodesRequest

    try:
        with link.client() as client:
            listed = client.ListNodes(ListNodesRequest()).nodes_info
    except httpx.HTTPError:
        return None
    online = {bytes(node.public_key) for node in listed if node.status == "online"}
    return {number: key in online for number, key in allowed.items()}
