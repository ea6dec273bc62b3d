from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, parameter_zeros
from .aggregate import Means, moved
from .interface import Algorithm, Server, Task

FIRST, SECOND = "m/", "v/"


@parameters
class FedOpt(Algorithm):
    """The server takes the mean change for a gradient and steps as Adam, Yogi or Adagrad would."""

    name = "fedopt"
    paper = "Reddi et al., Adaptive Federated Optimization, 2021"

    variant: Annotated[Literal["adam", "yogi", "adagrad"], Field(description="whose step the server takes")] = "adam"
    lr: Annotated[float, Field(gt=0, description="learning rate of the server")] = 0.01
    tau: Annotated[
        float, Field(gt=0, description="how adaptive: where changes are far smaller, all steps are alike")
    ] = 1e-3
    beta1: Annotated[float, Field(ge=0, lt=1, description="memory of the mean change; adagrad has none")] = 0.9
    beta2: Annotated[float, Field(ge=0, le=1, description="memory of its square; adagrad keeps the sum")] = 0.99

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        """Of parameters only: buffers are averaged, since a step of this kind may carry a variance below 0."""
        zeros = parameter_zeros(net)
        first = {FIRST + name: zero for name, zero in zeros.items()}
        return first | {SECOND + name: torch.full_like(zero, self.tau**2) for name, zero in zeros.items()}

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        step: Tensors = {}
        state: Tensors = {}
        for name in (key.removeprefix(FIRST) for key in server.state if key.startswith(FIRST)):
            change = means.change[name]
            first = self.first(server.state[FIRST + name].to(change.dtype), change)
            second = self.second(server.state[SECOND + name].to(change.dtype), change.square())
            step[name] = self.lr * first / (second.sqrt() + self.tau)
            for kept, moment in ((FIRST + name, first), (SECOND + name, second)):
                state[kept] = moment.to(server.state[kept].dtype)
        return Server(moved(server.weights, means.change | step), state)

    def first(self, before: Tensor, change: Tensor) -> Tensor:
        """The mean change as remembered; as in the paper, it starts at 0 and is not corrected for that."""
        return change if self.variant == "adagrad" else self.beta1 * before + (1 - self.beta1) * change

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """Its square as remembered."""
        if self.variant == "adagrad":
            return before + square
        if self.variant == "yogi":
            return before - (1 - self.beta2) * square * torch.sign(before - square)
        return self.beta2 * before + (1 - self.beta2) * square
