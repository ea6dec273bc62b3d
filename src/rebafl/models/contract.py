"""What is a model here? Any module with `features(x)` and `head(h)`, and how others are made to fit.

Batch normalisation: a client trains with its own batch statistics; running means and variances belong to
the state dict and are averaged like weights, counters too (rounded); evaluation uses the averaged ones.
Torch cannot train it on a batch of one sample: a client whose last batch is one is refused and says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..base.config import choices, import_name, parameters
from ..base.errors import UserError
from ..base.rng import torch_stream
from ..base.tensors import Tensors
from .kernels import pooled_conv

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


class FashionCNN(Classifier):
    """The paper's first CNN: conv 5x5 (16), pool, conv 5x5 (32), pool, FC 128, FC classes."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.conv1 = nn.Conv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        height, width = (((side - 4) // 2 - 2) // 2 for side in sides)
        self.flat = 32 * height * width
        self.hidden = nn.Linear(self.flat, 128)
        self.head = nn.Linear(128, classes)

    def features(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv1, x)
        x = _pooled(self.conv2, x)
        return F.leaky_relu(self.hidden(x.flatten(1)))


class CifarCNN(Classifier):
    """The paper's second CNN: a further conv 3x3 (64) and pool; FC 128 stays linear, the head has no bias."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.conv1 = nn.Conv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        height, width = ((((side - 4) // 2 - 2) // 2) // 2 for side in sides)
        self.flat = 64 * height * width
        self.hidden = nn.Linear(self.flat, 128)
        self.head = nn.Linear(128, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv1, x)
        x = _pooled(self.conv2, x)
        x = _pooled(self.conv3, x)
        out: Tensor = self.hidden(x.flatten(1))
        return out


class MLP(Classifier):
    """One hidden layer of 128, for inputs of any shape."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(int(torch.Size(shape).numel()), 128)
        self.head = nn.Linear(128, classes)

    def features(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.hidden(x.flatten(1)))


def _pooled(conv: nn.Conv2d, x: Tensor) -> Tensor:
    assert conv.bias is not None
    return pooled_conv(x, conv.weight, conv.bias, int(conv.padding[0]))


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
                f"model.last: {type(module).__name__} has no layer {last!r}; linear ones: {names}."
            ) from None
        if not isinstance(head, nn.Linear):
            raise UserError(f"model.last: {last!r} is not a linear layer of {type(module).__name__}.")
        setattr(holder, attribute, nn.Identity())
        self.body = module
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out.flatten(1)


Factory = Callable[..., nn.Module]
"""Called with the inputs' shape and the number of classes, or with nothing."""

BUILT_IN: dict[str, Factory] = {"fashion-cnn": FashionCNN, "cifar-cnn": CifarCNN, "mlp": MLP}


@parameters
class ModelChoice:
    """Which model: a name from `BUILT_IN`, or `module:callable` (own code, called with shape and classes)."""

    kind: Annotated[str, Field(description="fashion-cnn, cifar-cnn, mlp, or module:callable")] = "fashion-cnn"
    last: Annotated[str, Field(description="for a plain module: the name of its last linear layer")] = ""


def make_net(
    choice: ModelChoice, shape: tuple[int, ...], classes: int, seed: int, own: Factory | None = None
) -> Classifier:
    """The initial model of a run: the same for everyone who asks with the same seed."""
    factory = own or _factory(choice.kind)
    with torch_stream(seed, "model"):
        try:
            module = _call(factory, shape, classes)
            return fit_contract(module, choice.last, shape, classes)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # own code may fail in any way
            hint = "; for vectors there is model=mlp" if len(shape) == 1 and choice.kind in BUILT_IN else ""
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise UserError(f"model {choice.kind!r} does not fit inputs of shape {shape} ({reason}){hint}.") from None


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
        raise UserError(f"features() must give one vector an input; it gives shape {tuple(features.shape)[1:]}.")
    if tuple(logits.shape) != (1, classes):
        raise UserError(f"The model gives {tuple(logits.shape)[1:]} values an input; there are {classes} classes.")
    if not torch.equal(whole if before is None else before, logits):
        where = f"its layer {last!r}" if last else "its head"
        raise UserError(
            f"The model does more than head(features(x)) after {where}; make its forward() that and no more."
        )
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


def _factory(kind: str) -> Factory:
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    if ":" not in kind:
        raise UserError(f"model: there is no {kind!r}{choices(kind, BUILT_IN)}; or give module:callable.")
    factory = import_name(kind, "model")
    if not callable(factory):
        raise UserError(f"model: {kind} cannot be called to make a model.")
    return cast(Factory, factory)


def _call(factory: Factory, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Own factories may take (shape, classes), or nothing at all."""
    try:
        takes = len(inspect.signature(factory).parameters)
    except ValueError:
        takes = 0
    module = factory(shape, classes) if takes >= 2 else factory()
    if not isinstance(module, nn.Module):
        raise UserError(f"The model's factory returned a {type(module).__name__}, not a torch module.")
    return module


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
