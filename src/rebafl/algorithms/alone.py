from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.config import parameters
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..models.contract import Classifier, load_weights, weights_of
from .aggregate import Upload
from .interface import Algorithm, Client, Context, Costs, Sent, Server, Task

MOST = 1000  # clients whose models the server keeps, to score them


@parameters
class Alone(Algorithm):
    """No federation: each client trains a model of its own, and the mean of their scores counts. The floor.

    What is sent stays the first model. Uploads serve to score the clients' models; nobody else gets them.
    """

    name = "alone"
    costs = Costs("the client's model", "none; models go up only to be scored", "the test set once for each client")

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        if task.clients > MOST:
            raise UserError(f"alone keeps a model for each client, of {MOST} at the most; lower partition.clients.")
        return {_key(client, name): w for client in range(task.clients) for name, w in weights_of(net).items()}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """The client goes on with its own model."""
        if client.state is not None:
            load_weights(net, client.state)
        return Context(sent, client)

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        return _model(context.sent.weights, upload)

    def client_state_template(self, server: Server) -> Tensors:
        return server.weights

    def aggregate(self, server: Server, uploads: Sequence[Upload], clients: int) -> Server:
        state = dict(server.state)
        for upload in uploads:
            state |= {_key(upload.client, name): w for name, w in _model(server.weights, upload).items()}
        return replace(server, state=state)

    def scored(self, server: Server) -> Sequence[Tensors]:
        clients = len(server.state) // len(server.weights)
        return [{name: server.state[_key(client, name)] for name in server.weights} for client in range(clients)]

    def evaluated(self, server: Server) -> Tensors:
        raise UserError("A run of alone has a model for each client and none for all; take one of another algorithm.")


def _key(client: int, name: str) -> str:
    return f"{client}/{name}"


def _model(first: Tensors, upload: Upload) -> Tensors:
    """A client's model: what it uploads is its distance from the first one."""
    return {name: first[name] + change for name, change in upload.change.items()}
