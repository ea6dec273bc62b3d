from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier
from .aggregate import Upload, moved, weighted_mean
from .interface import Algorithm, Context, Costs, Device, Sent, Server, Task, Training, gradients


@parameters
class Scaffold(Algorithm):
    """Corrects every local gradient by c - c_i, the difference of the global and the own mean gradient (option II)."""

    name = "scaffold"
    paper = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, 2020"
    costs = Costs(
        "c_i, as large as the model", "c down and the change of c_i up: twice FedAvg", "two additions a weight and step"
    )

    gradient: Annotated[
        Literal["exact", "raw"],
        Field(description="mean gradient from the path: with momentum's longer steps counted, or 1/(K lr)"),
    ] = "exact"
    scale: Annotated[
        Literal["all", "active"], Field(description="c moves by the changes' sum over all clients, or over the active")
    ] = "all"
    clip: Annotated[float, Field(ge=0, description="bound on the corrected gradient's norm; 0: none")] = 0.0

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        return {name: torch.zeros_like(p, memory_format=torch.contiguous_format) for name, p in net.named_parameters()}

    def broadcast(self, server: Server) -> Tensors:
        return server.state

    def start(self, net: Classifier, sent: Sent, device: Device) -> Context:
        own = device.state or {name: torch.zeros_like(c) for name, c in sent.extra.items()}
        return Context(sent, device, own)

    def correct(self, net: Classifier, context: Context) -> None:
        for name, _, gradient in gradients(net):
            gradient.add_(context.sent.extra[name]).sub_(context.own[name])
        if self.clip > 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), self.clip)

    def finish(self, net: Classifier, context: Context, steps: int) -> tuple[Upload, Tensors]:
        path = self.path_length(context.device.training, steps)
        after, shared = {}, {}
        for name, c in context.sent.extra.items():
            moved_by = context.sent.weights[name] - net.get_parameter(name).detach()
            after[name] = context.own[name] - c + moved_by / path
            shared[name] = after[name] - context.own[name]
        return self.upload(net, context, shared), after

    def path_length(self, training: Training, steps: int) -> float:
        """How far a constant gradient of one would have moved a weight: lr Σ_k (1 - β^k) / (1 - β)."""
        if self.gradient == "raw":
            return training.lr * steps
        beta = training.momentum
        return training.lr * sum((1 - beta**k) / (1 - beta) for k in range(1, steps + 1))

    def client_state(self, server: Server) -> Tensors:
        return server.state

    def shared(self, server: Server) -> Tensors:
        return server.state

    def aggregate(self, server: Server, uploads: Sequence[Upload], clients: int) -> Server:
        alike = [1.0] * len(uploads)
        weights = moved(server.weights, weighted_mean([upload.change for upload in uploads], alike))
        share = len(uploads) / clients if self.scale == "all" else 1.0
        c = moved(server.state, weighted_mean([upload.shared for upload in uploads], alike), share)
        return replace(server, weights=weights, state=c)
