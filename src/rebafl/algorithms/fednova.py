from __future__ import annotations

from dataclasses import replace

import torch

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier
from .aggregate import Means, Upload, moved
from .interface import Algorithm, Context, Costs, Server, Task
from .path import path_length

STEPS = "steps"


@parameters
class FedNova(Algorithm):
    """Normalised averaging: changes count per step, so that clients with more steps do not pull further."""

    name = "fednova"
    paper = "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, 2020"
    costs = Costs(communication="up: one number", compute="one division per weight and round")
    shared_weight = "samples"
    needs_sgd = "it divides by the number of plain steps that a client's way amounts to"

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        """Nothing under the name of each parameter: the names say what is no buffer, which is averaged as it is."""
        return {name: torch.zeros(0) for name, _ in net.named_parameters()}

    def upload(self, net: Classifier, context: Context, steps: int) -> Upload:
        whole = super().upload(net, context, steps)
        per_step = {name: whole.change[name] / self.length(context, steps) for name, _ in net.named_parameters()}
        return replace(whole, change={**whole.change, **per_step})

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        return {STEPS: torch.full((1,), self.length(context, steps), dtype=torch.float64)}

    def shared_template(self, server: Server) -> Tensors:
        return {STEPS: torch.zeros(1, dtype=torch.float64)}

    def length(self, context: Context, steps: int) -> float:
        """The paper's |a_i|: how many plain steps these steps with momentum amount to."""
        training = context.client.training
        return path_length(training, steps) / training.lr

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        """All go on by the same number of steps: the mean."""
        scaled = {name: means.shared[STEPS] * means.change[name] for name in server.state}
        return replace(server, weights=moved(server.weights, means.change | scaled))
