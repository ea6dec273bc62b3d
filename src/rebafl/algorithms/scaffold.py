from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from ..base.config import Added, parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, parameter_zeros
from .aggregate import Means, Upload, moved
from .interface import Algorithm, Client, Context, Costs, Sent, Server, Task, Training, gradients
from .path import path_length


@parameters
class Scaffold(Algorithm):
    """Corrects every local gradient by c - c_i, the difference of the global and the own mean gradient (option II)."""

    name = "scaffold"
    paper = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, 2020"
    costs = Costs(
        "c_i, as large as the model",
        "c down and the change of c_i up: twice FedAvg",
        "two additions per weight and step",
    )
    change_weight = "clients"
    needs_sgd = "it takes mean gradients from the way that a client's weights went"
    shared_weight = "clients"

    gradient: Annotated[
        Literal["exact", "raw"],
        Field(description="mean gradient from the path: with momentum's longer steps counted, or 1/(K lr)"),
    ] = "exact"
    scale: Annotated[
        Literal["all", "active"], Field(description="c moves by the changes' sum over all clients, or over the active")
    ] = "all"
    clip: Annotated[
        float, Field(ge=0, description="bound on the gradient's norm, with c - c_i if that is a part of it; 0: none")
    ] = 0.0
    correction: Annotated[
        Literal["gradient", "weights"],
        Field(description="c - c_i is a part of each gradient, or taken from the weights, times lr, after each step"),
        Added(before="gradient"),
    ] = "gradient"

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        return parameter_zeros(net)

    def broadcast(self, server: Server) -> Tensors:
        return server.state

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        own = client.state or {name: torch.zeros_like(c) for name, c in sent.extra.items()}
        return Context(sent, client, own)

    def correct(self, net: Classifier, context: Context) -> None:
        if self.correction == "gradient":
            for name, _, gradient in gradients(net):
                gradient.add_(context.sent.extra[name]).sub_(context.prepared[name])
        if self.clip > 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), self.clip)

    @torch.no_grad()
    def after_step(self, net: Classifier, context: Context) -> None:
        if self.correction == "weights":
            lr = context.client.training.lr
            for name, c in context.sent.extra.items():
                net.get_parameter(name).sub_(c - context.prepared[name], alpha=lr)

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        return {name: c - context.prepared[name] for name, c in self.next_variate(net, context, steps).items()}

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        """c_i moves by what was sent, or c would no longer be the mean of all c_i."""
        state = {}
        for name, variate in self.next_variate(net, context, steps).items():
            before, change = context.prepared[name], upload.shared[name]
            # before + change is the variate, rounded once more: only for a change that was altered on its way out
            state[name] = variate if torch.equal(variate - before, change) else before + change
        return state

    def next_variate(self, net: Classifier, context: Context, steps: int) -> Tensors:
        """c_i after this round: the mean gradient on the path just taken, without the correction c - c_i."""
        path = self.path_length(context.client.training, steps)
        plain = context.client.training.lr * steps  # what momentum does not lengthen
        variate = {}
        for name, c in context.sent.extra.items():
            own, way = context.prepared[name], context.sent.weights[name] - net.get_parameter(name).detach()
            if self.correction == "gradient":
                variate[name] = own - c + way / path
            else:
                variate[name] = (way - plain * (c - own)) / path
        return variate

    def path_length(self, training: Training, steps: int) -> float:
        """How far a constant gradient of one would have moved a weight."""
        return training.lr * steps if self.gradient == "raw" else path_length(training, steps)

    def client_state_template(self, server: Server) -> Tensors:
        return server.state

    def shared_template(self, server: Server) -> Tensors:
        return server.state

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        share = means.uploads / clients if self.scale == "all" else 1.0
        c = moved(server.state, means.shared, share)
        return replace(server, weights=moved(server.weights, means.change), state=c)
