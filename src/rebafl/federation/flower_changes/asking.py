"""How is a guarded SuperLink asked? With the secret of its machine, by Flower's own programs, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..guard import HEADER, proof


def send_secret(secret: bytes) -> None:
    """From now on, whatever this process asks of a SuperLink or a SuperNode says that it has the secret."""
    from flwr.supercore.protobuf.client import ProtobufClient

    send_plain = ProtobufClient._send

    def send_proven(client: Any, context: Any, **options: Any) -> Any:
        context.request.headers[HEADER] = proof(secret)
        return send_plain(client, context, **options)

    setattr(ProtobufClient, "_send", send_proven)


def run_flwr() -> None:
    """Run `flwr`, with its words in `sys.argv`."""
    from flwr.cli.app import app

    app()


class ControlApi:
    """The part of the SuperLink's Control API that registers nodes; `flwr` itself has commands for some of it only."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def nodes(self) -> list[Any]:
        """All nodes that the SuperLink ever knew, with `node_id`, `public_key` and `status`."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return list(self.client.ListNodes(ListNodesRequest()).nodes_info)

    def register(self, public_key: bytes, name: str) -> None:
        from flwr.proto.control_pb2 import RegisterNodeRequest

        self.client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name))

    def unregister(self, node_id: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self.client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))


class SecretInterceptor:
    """Says with each request of a client that it has the secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        context.request.headers[HEADER] = proof(self.secret)
        return call_next(context)


@contextmanager
def control_api(address: str, authority: bytes, secret: bytes) -> Iterator[ControlApi]:
    """A connection to the SuperLink at this address of this machine; it raises the errors of httpx."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperLink"), SecretInterceptor(secret)]
    client = ControlHttpClient.from_server_address(address, False, authority, interceptors)
    try:
        yield ControlApi(client)
    finally:
        client.close()
