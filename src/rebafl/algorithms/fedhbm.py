from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier
from .aggregate import Means, Upload, moved
from .interface import Algorithm, Client, Context, Costs, Sent, Server, Task, gradients
from .path import path_length, planned_steps

ROUNDS, TURNS = "rounds", "turns"
WINDOW, STRENGTH = "window", ".strength"  # no parameter has a name with a dot in front


@parameters
class FedHBM(Algorithm):
    """Heavy-ball momentum over a turn of all clients: a client goes on in the direction from its own last model."""

    name = "fedhbm"
    paper = "Zaccone et al., Communication-Efficient Federated Learning with Generalized Heavy-Ball Momentum, 2025"
    costs = Costs("the client's last model", "down: one number", "two additions per weight and step")

    needs_sgd = "its momentum is spread over the way that a client's weights will go"

    beta: Annotated[float, Field(ge=0, description="size of the momentum")] = 1.0
    window: Annotated[
        float, Field(ge=0, description="rounds in which all clients have their turn (1/p); 0: as counted so far")
    ] = 0.0

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        """How many rounds there were, and in how many of them all clients would have had their turn."""
        return {ROUNDS: torch.zeros(1, dtype=torch.float64), TURNS: torch.zeros(1, dtype=torch.float64)}

    def broadcast(self, server: Server) -> Tensors:
        rounds, turns = server.state[ROUNDS], server.state[TURNS]
        counted = rounds / turns if rounds > 0 else torch.ones_like(rounds)
        return {WINDOW: torch.full_like(counted, self.window) if self.window else counted}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """A client without a last model trains as in FedAvg."""
        if client.state is None:
            return Context(sent, client)
        way = path_length(client.training, planned_steps(client))
        return Context(sent, client, client.state | {STRENGTH: self.beta / (sent.extra[WINDOW] * way)})

    def correct(self, net: Classifier, context: Context) -> None:
        """Every step goes on by a part of w_i minus the last model; all steps together by beta / window of it."""
        if last := context.prepared:
            for name, parameter, gradient in gradients(net):
                gradient.add_(last[name] - parameter.detach(), alpha=float(last[STRENGTH]))

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        """The model that the server got."""
        received = context.sent.weights
        return {name: received[name] + change for name, change in upload.change.items()}

    def client_state_template(self, server: Server) -> Tensors:
        return server.weights

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        after = {ROUNDS: server.state[ROUNDS] + 1, TURNS: server.state[TURNS] + means.uploads / clients}
        return Server(moved(server.weights, means.change), after)
