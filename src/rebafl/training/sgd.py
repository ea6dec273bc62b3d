"""How does a step change the weights? Stochastic gradient descent with momentum, or Adam."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..algorithms.interface import Training

EPSILON = 1e-8  # Adam's, so that nothing is divided by zero


class Optimiser(ABC):
    """One of torch.optim's to the bit (a test holds each), without the seconds that importing it costs each worker."""

    def __init__(self, parameters: Sequence[nn.Parameter], training: Training) -> None:
        self.parameters, self.training = parameters, training

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @abstractmethod
    def step(self) -> None:
        """Change the parameters by their gradients."""


class SGD(Optimiser):
    """With momentum, or Nesterov's; weight decay is a part of the gradient."""

    def __init__(self, parameters: Sequence[nn.Parameter], training: Training) -> None:
        super().__init__(parameters, training)
        self.velocities: dict[nn.Parameter, Tensor] = {}

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
                if training.nesterov:
                    velocity = gradient.add(velocity, alpha=training.momentum)
            parameter.add_(velocity, alpha=-training.lr)


class Adam(Optimiser):
    """Adam; and AdamW, whose weight decay is no part of the gradient."""

    def __init__(self, parameters: Sequence[nn.Parameter], training: Training) -> None:
        super().__init__(parameters, training)
        self.steps: dict[nn.Parameter, int] = {}
        self.means: dict[nn.Parameter, Tensor] = {}
        self.squares: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        training, (first, second) = self.training, self.training.betas
        for parameter in self.parameters:
            if (gradient := parameter.grad) is None:
                continue
            step = self.steps[parameter] = self.steps.get(parameter, 0) + 1
            mean = self.means.setdefault(parameter, torch.zeros_like(parameter))
            square = self.squares.setdefault(parameter, torch.zeros_like(parameter))
            if training.optimizer == "adamw":
                parameter.mul_(1 - training.lr * training.weight_decay)
            elif training.weight_decay:
                gradient = gradient.add(parameter, alpha=training.weight_decay)
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            spread = (square.sqrt() / math.sqrt(1 - second**step)).add_(EPSILON)
            parameter.addcdiv_(mean, spread, value=-training.lr / (1 - first**step))


def make_optimiser(parameters: Sequence[nn.Parameter], training: Training) -> Optimiser:
    """The optimiser that the settings name, at its start."""
    return SGD(parameters, training) if training.optimizer == "sgd" else Adam(parameters, training)
