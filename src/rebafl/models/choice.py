"""Which model does a run train? One of the networks here, or own code, made alike for everyone with the same seed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from ..base.config import parameters
from ..base.errors import UserError
from ..base.kinds import Kinds, no_function
from ..base.rng import torch_stream
from ..base.words import one_line, own_place
from .contract import Classifier, fit_contract
from .networks import MLP, CifarCNN, FashionCNN

Factory = Callable[..., nn.Module]
"""Called with the inputs' shape and the number of classes, or with nothing."""

KINDS: Kinds[Factory] = Kinds(
    "model",
    {"fashion-cnn": FashionCNN, "cifar-cnn": CifarCNN, "mlp": MLP},
    no_function("model"),
    form="module:callable",
)


@parameters
class ModelChoice:
    """Which model: a name from `KINDS`, or `module:callable` (own code, called with shape and classes)."""

    kind: Annotated[str, Field(description="fashion-cnn, cifar-cnn, mlp, or module:callable")] = "fashion-cnn"
    last: Annotated[str, Field(description="for a plain module: the name of its last linear layer")] = ""


def make_net(
    choice: ModelChoice, shape: tuple[int, ...], classes: int, seed: int, own: Factory | None = None
) -> Classifier:
    """The initial model of a run: the same for everyone who asks with the same seed."""
    factory = own or KINDS.find(choice.kind)
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
            hint = "; for vectors there is model=mlp" if len(shape) == 1 and choice.kind in KINDS else ""
            place, reason = own_place(error), one_line(error)
            what = f"failed{place} on an input" if place else "does not fit inputs"
            raise UserError(f"model {choice.kind!r} {what} of shape {shape} ({reason}){hint}.") from error


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
