from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, parameter_zeros, weights_of
from .aggregate import Means, Upload, moved
from .interface import Algorithm, Client, Context, Costs, Sent, Server, Task, gradients

H, MEAN = "h/", "mean/"


@parameters
class FedDyn(Algorithm):
    """A linear term s_i and a pull alpha make the local optima agree with the global one.

    What is sent is the cloud model mean - h / alpha; what counts as the result is the mean of the clients.
    """

    name = "feddyn"
    paper = "Acar et al., Federated Learning Based on Dynamic Regularization, 2021"
    costs = Costs("s_i, as large as the model", "none", "three additions per weight and step")
    change_weight = "clients"

    alpha: Annotated[float, Field(gt=0, description="strength of the pull; the ReBaFL authors' code has 1e-4")] = 0.01

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        h = {H + name: zero for name, zero in parameter_zeros(net).items()}
        return h | {MEAN + name: tensor for name, tensor in weights_of(net).items()}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        zeros = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
        return Context(sent, client, client.state or zeros)

    def correct(self, net: Classifier, context: Context) -> None:
        for name, parameter, gradient in gradients(net):
            pull = parameter.detach() - context.sent.weights[name]
            gradient.sub_(context.prepared[name]).add_(pull, alpha=self.alpha)

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        return {name: s - self.alpha * upload.change[name] for name, s in context.prepared.items()}

    def client_state_template(self, server: Server) -> Tensors:
        return {name.removeprefix(H): h for name, h in server.state.items() if name.startswith(H)}

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        old = self.client_state_template(server)
        share = means.uploads / clients
        h = moved(old, {name: means.change[name] for name in old}, -self.alpha * share)
        mean = moved(server.weights, means.change)
        cloud = moved(mean, {name: tensor.to(torch.float64) for name, tensor in h.items()}, -1 / self.alpha)
        state = {H + name: t for name, t in h.items()} | {MEAN + name: t for name, t in mean.items()}
        return Server(cloud, state)

    def evaluated(self, server: Server) -> Tensors:
        return {name.removeprefix(MEAN): mean for name, mean in server.state.items() if name.startswith(MEAN)}

    def also_evaluated(self, server: Server) -> dict[str, Tensors]:
        return {"cloud": server.weights}
