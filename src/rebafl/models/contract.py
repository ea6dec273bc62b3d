"""What is a model here? Any module with `features(x)` and `head(h)`, and how others are made to fit.

Batch normalisation: a client trains with its own batch statistics; running means and variances belong to
the state dict and are averaged like weights, counters too (rounded); evaluation uses the averaged ones.
Torch cannot train it on a batch of one sample: a client whose last batch is one is refused and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ..base.errors import UserError
from ..base.tensors import Tensors

Part = Literal["features", "head"]
HEAD = "head"
CHUNK = 500  # samples in one pass without gradients; fixed, since results depend on it in the last bits


class Classifier(nn.Module):
    """The contract: `head(features(x))` are the logits, and the head's parameters are named `head.*`.

    Deriving from this class is convenient; any module with the same two names will do.
    """

    head: nn.Module

    def features(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define features()")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x))
        return out


class Adapted(Classifier):
    """A plain module whose last linear layer, named by the user, became the head."""

    def __init__(self, module: nn.Module, last: str) -> None:
        super().__init__()
        owner, _, attribute = last.rpartition(".")
        try:
            holder = module.get_submodule(owner)
            head = module.get_submodule(last)
        except AttributeError:
            names = ", ".join(name for name, layer in module.named_modules() if isinstance(layer, nn.Linear))
            raise UserError(
                f"model.last: {type(module).__name__} has no layer {last!r}; linear ones: {names or 'none'}."
            ) from None
        if not isinstance(head, nn.Linear):
            raise UserError(f"model.last: {last!r} is not a linear layer of {type(module).__name__}.")
        setattr(holder, attribute, nn.Identity())
        self.body = module
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out.flatten(1)


def fit_contract(module: nn.Module, last: str, shape: tuple[int, ...], classes: int) -> Classifier:
    """Adapt a plain module if asked to, and prove on one input that the contract holds."""
    module = module.eval()
    probe = torch.linspace(-1, 1, int(torch.Size(shape).numel())).reshape(1, *shape)
    with torch.no_grad():
        before = module(probe) if last else None
    net = Adapted(module, last).eval() if last else cast(Classifier, module)
    if not (callable(getattr(net, "features", None)) and isinstance(getattr(net, "head", None), nn.Module)):
        raise UserError(
            f"{type(module).__name__} has no features() and head; name its last linear layer with model.last=LAYER."
        )
    if type(net).forward is nn.Module.forward:  # features and head are enough
        setattr(net, "forward", MethodType(Classifier.forward, net))
    with torch.no_grad():
        features = net.features(probe)
        logits = net.head(features)
        whole = net(probe)
    if features.dim() != 2:
        raise UserError(f"features() must give one vector per input; it gives shape {tuple(features.shape)[1:]}.")
    if tuple(logits.shape) != (1, classes):
        raise UserError(f"The model gives {tuple(logits.shape)[1:]} values per input; there are {classes} classes.")
    if not torch.equal(whole if before is None else before, logits):
        where = f"its layer {last!r}" if last else "its head"
        raise UserError(
            f"The model does more than head(features(x)) after {where}; make its forward() that and no more."
        )
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


def part_of(name: str) -> Part:
    """Which part of the model a parameter belongs to, by its name."""
    return "head" if name.startswith(f"{HEAD}.") else "features"


def load_weights(net: nn.Module, weights: Tensors) -> None:
    """Copy values into the tensors the module has: their memory layout, and with it every bit, stays."""
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if tensor.shape != weights[name].shape:  # copy_ would stretch it
                raise ValueError(f"{name} has shape {tuple(weights[name].shape)}, not {tuple(tensor.shape)}")
            tensor.copy_(weights[name])


def weights_of(net: nn.Module) -> Tensors:
    """A copy of all that the model consists of: parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def parameter_zeros(net: nn.Module) -> Tensors:
    """Zeros in the shapes of the parameters, by name: where a state starts that is kept for each of them."""
    return {name: torch.zeros_like(p, memory_format=torch.contiguous_format) for name, p in net.named_parameters()}


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients for a while."""
    before = net.training
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(before)


def extract(net: Classifier, inputs: Tensor) -> Tensor:
    """The features of all inputs, without gradients, in fixed chunks."""
    with evaluating(net):
        return torch.cat([net.features(chunk) for chunk in torch.split(inputs, CHUNK)])
