"""What does an attacker differentiate? Features of pictures, deep or shallow, under a model that stays as it is.

Deep is the feature that the head reads. Shallow is the output of the first convolution, before anything is pooled or
cut off: what a client would share if prototypes were taken there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from ...base.errors import UserError
from ...data.arrays import Inputs
from ...models.contract import Classifier

View = Callable[[Tensor], Tensor]
"""From pictures with numbers from 0 to 1, channels first, to one row of features for each; differentiable."""


def pictures_of(raw: Tensor, inputs: Inputs) -> Tensor:
    """Stored samples as pictures: numbers from 0 to 1, channels first."""
    _check(inputs)
    return (raw.to(torch.float32) / 255).permute(0, 3, 1, 2).contiguous()


def deep(net: Classifier, inputs: Inputs) -> View:
    """The feature that the head reads, and of which prototypes are means."""
    frozen = _frozen(net, inputs)

    def view(pictures: Tensor) -> Tensor:
        return frozen.features(_normalised(pictures, inputs))

    return view


def shallow(net: Classifier, inputs: Inputs) -> View:
    """The output of the first convolution, flattened."""
    frozen = _frozen(net, inputs)
    conv, is_called = _first_convolution(frozen, inputs)

    def applied(pictures: Tensor) -> Tensor:
        out: Tensor = conv(_normalised(pictures, inputs))
        return out.flatten(1)

    def overheard(pictures: Tensor) -> Tensor:
        heard: list[Tensor] = []
        handle = conv.register_forward_hook(lambda module, given, out: heard.append(out))
        try:
            frozen.features(_normalised(pictures, inputs))
        finally:
            handle.remove()
        return heard[0].flatten(1)

    return overheard if is_called else applied


def _check(inputs: Inputs) -> None:
    if len(inputs.shape) != 3 or not inputs.pixels:
        raise UserError(
            f"Pictures can be reconstructed where samples are images stored as bytes; these have shape {inputs.shape} "
            f"and are {'bytes' if inputs.pixels else 'other numbers'}."
        )


def _frozen(net: Classifier, inputs: Inputs) -> Classifier:
    """A copy: other weights may be loaded into the original while an attack goes on."""
    _check(inputs)
    return deepcopy(net).eval().requires_grad_(False)


def _normalised(pictures: Tensor, inputs: Inputs) -> Tensor:
    """The same operations, in the same memory layout, as stored samples go through: the same bits."""
    dtype = pictures.dtype
    x = pictures.permute(0, 2, 3, 1).contiguous()
    x = (x - torch.tensor(inputs.mean, dtype=dtype)) / torch.tensor(inputs.std, dtype=dtype)
    return x.permute(0, 3, 1, 2)


def _first_convolution(net: Classifier, inputs: Inputs) -> tuple[nn.Conv2d, bool]:
    """The first that is called when features are computed, and that it is called.

    A network may use the weights of a convolution without calling it, as those of this package do; then it is the first
    that it has.
    """
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    called: list[nn.Conv2d] = []
    handles = [
        module.register_forward_hook(lambda module, given, out: called.append(module)) for module in convolutions
    ]
    probe = torch.zeros(1, *inputs.shape, dtype=next(net.parameters()).dtype)
    try:
        with torch.no_grad():
            net.features(probe)
    finally:
        for handle in handles:
            handle.remove()
    if called:
        return called[0], True
    if not convolutions or convolutions[0].in_channels != inputs.shape[0]:
        raise UserError(
            f"{type(net).__name__} has no convolution that reads the pictures, so it has no shallow features; "
            "audit its deep ones."
        )
    return convolutions[0], False
