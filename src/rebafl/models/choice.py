"""Which model does a run train? One of the networks here, or own code, made alike for everyone with the same seed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from ..base.config import Added, parameters
from ..base.errors import UserError
from ..base.kinds import Kinds, no_function
from ..base.rng import torch_stream
from ..base.words import one_line, own_place
from .contract import Classifier, fit_contract
from .networks import MLP, CifarCNN, FashionCNN, LinearModel
from .resnet import ResNet18, ResNet20

Factory = Callable[..., nn.Module]
"""Called with the inputs' shape and the number of classes, or with nothing."""

KINDS: Kinds[Factory] = Kinds(
    "model",
    {
        "fashion-cnn": FashionCNN,
        "cifar-cnn": CifarCNN,
        "resnet20-gn": ResNet20,
        "resnet18-gn": ResNet18,
        "mlp": MLP,
        "lr": LinearModel,
    },
    no_function("model"),
    form="module:callable",
)

LEAST_SIDE = {"fashion-cnn": 12, "cifar-cnn": 16, "resnet20-gn": 1, "resnet18-gn": 1}
"""Models that read images only, and how many pixels a side these must have."""


@parameters
class ModelChoice:
    """Which model: a name from `KINDS`, or `module:callable` (own code, called with shape and classes)."""

    kind: Annotated[
        str, Field(description="fashion-cnn, cifar-cnn, resnet20-gn, resnet18-gn, mlp, lr, or module:callable")
    ] = "fashion-cnn"
    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(min_length=1, description="for mlp: how wide its hidden layers are"),
        Added(before=(128,)),
    ] = (128,)
    last: Annotated[str, Field(description="for a plain module: the name of its last linear layer")] = ""


def make_net(
    choice: ModelChoice, shape: tuple[int, ...], classes: int, seed: int, own: Factory | None = None
) -> Classifier:
    """The initial model of a run: the same for everyone who asks with the same seed."""
    factory = own or _factory(choice, shape)
    with torch_stream(seed, "model"):
        try:
            threads = torch.get_num_threads()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # it is refused below
                module = _call(factory, shape, classes)
            torch.set_num_threads(threads)  # whatever own code wanted: see training/resources
            return fit_contract(module, choice.last, shape, classes)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # own code may fail in any way
            place, reason = own_place(error), one_line(error)
            what = f"failed{place} on an input" if place else "does not fit inputs"
            raise UserError(f"model {choice.kind!r} {what} of shape {shape} ({reason}).") from error


def _factory(choice: ModelChoice, shape: tuple[int, ...]) -> Factory:
    """What makes the model that is named; one of this package's that does not fit is refused with those that do."""
    if choice.hidden != ModelChoice().hidden and choice.kind != "mlp":
        raise UserError(f"model.hidden says how wide the layers of model=mlp are; model={choice.kind} has no such key.")
    if choice.kind == "mlp":
        return partial(MLP, hidden=choice.hidden)
    if not _fits(choice.kind, shape):
        side = LEAST_SIDE[choice.kind]
        fit = ", ".join(f"model={name}" for name in KINDS if _fits(name, shape))
        needs = f"images of at least {side}x{side} pixels" if side > 1 else "images"
        raise UserError(
            f"model {choice.kind!r} needs {needs}, the data have inputs of shape {shape}; what fits: {fit}."
        )
    return KINDS.find(choice.kind)


def _fits(kind: str, shape: tuple[int, ...]) -> bool:
    return kind not in LEAST_SIDE or (len(shape) == 3 and min(shape[1:]) >= LEAST_SIDE[kind])


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
