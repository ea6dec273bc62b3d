from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, parameter_zeros
from .aggregate import Means, moved
from .interface import Algorithm, Server, Task


@parameters
class FedAvgM(Algorithm):
    """FedAvg with momentum at the server: the mean changes of earlier rounds go on, each round a little weaker."""

    name = "fedavgm"
    paper = (
        "Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019"
    )

    beta: Annotated[float, Field(ge=0, lt=1, description="momentum: what is left of the velocity after a round")] = 0.9
    lr: Annotated[float, Field(gt=0, description="learning rate of the server")] = 1.0

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        """The velocity of each parameter; buffers have none, since a running variance must not overshoot below 0."""
        return parameter_zeros(net)

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        velocity = {name: self.beta * v + means.change[name] for name, v in server.state.items()}
        step = {name: self.lr * v for name, v in velocity.items()}
        weights = moved(server.weights, means.change | step)
        return Server(weights, {name: v.to(server.state[name].dtype) for name, v in velocity.items()})
