"""How does a step change the weights? Stochastic gradient descent with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..algorithms.interface import Training


class SGD:
    """torch.optim.SGD to the bit (a test holds it), without the seconds that importing that costs each worker."""

    def __init__(self, parameters: Sequence[nn.Parameter], training: Training) -> None:
        self.parameters, self.training = parameters, training
        self.velocities: dict[nn.Parameter, Tensor] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Gradients are taken over: after a step they are no gradients any more."""
        training = self.training
        for parameter in self.parameters:
            if (gradient := parameter.grad) is None:
                continue
            if training.weight_decay:
                gradient.add_(parameter, alpha=training.weight_decay)
            velocity = gradient
            if training.momentum:
                velocity = self.velocities.setdefault(parameter, gradient)
                if velocity is not gradient:
                    velocity.mul_(training.momentum).add_(gradient)
            parameter.add_(velocity, alpha=-training.lr)
