"""What is a data set, whoever made it? Four arrays, their class names, and how inputs are normalised."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.errors import UserError
from .text import hashed_words, is_text

Layout = Literal["guess", "channels-last"]
Arrays = dict[str, npt.NDArray[np.generic]]
"""`x_train`, `y_train`, `x_test`, `y_test`; images as (n, height, width, channels)."""

MOST_CLASSES = 10_000
MOST_FEATURES = 2**20  # each has a mean and a standard deviation that travel with the model
NAMES = ("x_train", "y_train", "x_test", "y_test")


@parameters
class Inputs:
    """What a model must know of its inputs. Calling it turns stored samples into what a model reads."""

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1, max_length=3)]
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    pixels: bool

    def __call__(self, raw: Tensor) -> Tensor:
        """float32, normalised; images channels-first in channels_last memory."""
        x = raw.to(torch.float32)
        if self.pixels:
            x = x / 255
        x = (x - torch.tensor(self.mean)).div_(torch.tensor(self.std))
        return x.permute(0, 3, 1, 2) if x.dim() == 4 else x

    @property
    def black(self) -> Tensor:
        """What a stored zero becomes, by channel."""
        return -torch.tensor(self.mean) / torch.tensor(self.std)


@dataclass(frozen=True)
class Data:
    """A data set in memory. Images are stored as they came (bytes stay bytes), channels last."""

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    inputs: Inputs
    validation: Tensor | None = None
    """Positions of the training samples that no client holds, since models are chosen on them."""
    client_train: Tensor | None = None
    """Whose each training sample is, from 0 on, where the data say so: for `partition=natural`."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.inputs.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """One input as a model sees it: (channels, height, width), or (features,)."""
        return self.inputs.shape

    @cached_property
    def digest(self) -> str:
        arrays = digest({name: getattr(self, name).numpy() for name in NAMES})
        if self.client_train is None:
            return arrays
        return hashlib.sha256(arrays.encode() + self.client_train.numpy().tobytes()).hexdigest()


def digest(arrays: Mapping[str, npt.NDArray[np.generic]]) -> str:
    """SHA-256 over the four arrays, decoded: the same whichever archive they came from, however labels are stored."""
    total = hashlib.sha256()
    for name in NAMES:
        array = arrays[name].astype(np.int64) if name.startswith("y") else arrays[name]
        total.update(f"{name} {array.shape} {array.dtype}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def check(arrays: Mapping[str, npt.NDArray[np.generic]], where: str, layout: Layout = "guess") -> Arrays:
    """Arrays from anywhere -> arrays in the one layout used here, or a sentence about what is wrong."""
    missing = [name for name in NAMES if name not in arrays]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}; a data set needs {', '.join(NAMES)}.")
    checked = {name: np.asarray(arrays[name]) for name in NAMES}
    for part in ("train", "test"):
        x, y = checked[f"x_{part}"], checked[f"y_{part}"]
        if x.dtype.kind not in "uif" or x.ndim < 2 or not x.size:
            raise UserError(f"{where}: x_{part} must hold samples of numbers, not {x.dtype} of shape {x.shape}.")
        if y.ndim != 1 or y.dtype.kind not in "ui" or len(x) != len(y):
            raise UserError(f"{where}: y_{part} must hold one whole number for each of x_{part}'s {len(x)} samples.")
        if y.min() < 0 or y.max() >= MOST_CLASSES:
            raise UserError(f"{where}: y_{part} must hold class numbers from 0 to {MOST_CLASSES - 1} at the most.")
        if x.shape[-1] > MOST_FEATURES:
            raise UserError(f"{where}: x_{part} has {x.shape[-1]} features a sample; {MOST_FEATURES} are the most.")
        checked[f"x_{part}"] = _layout(x, f"{where}: x_{part}", layout)
        checked[f"y_{part}"] = y.astype(np.int64)
    if checked["x_train"].shape[1:] != checked["x_test"].shape[1:]:
        raise UserError(
            f"{where}: training samples have shape {checked['x_train'].shape[1:]}, "
            f"test samples {checked['x_test'].shape[1:]}; make them alike."
        )
    return checked


def _layout(x: npt.NDArray[np.generic], where: str, layout: Layout) -> npt.NDArray[np.generic]:
    if x.ndim == 3:
        x = x[..., None]
    elif x.ndim == 4 and layout == "guess" and _channels_first(x.shape, where):
        x = x.transpose(0, 2, 3, 1)
    elif x.ndim not in (2, 4):
        raise UserError(
            f"{where} has shape {x.shape}; images are (n, height, width[, channels]), vectors (n, features)."
        )
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):  # what does not fit is refused in the next line
        numbers = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(numbers).all():
        raise UserError(f"{where} holds NaN, infinity or numbers too large for 32 bits.")
    return numbers


def _channels_first(shape: tuple[int, ...], where: str) -> bool:
    """Are these images (n, channels, height, width)? Where that cannot be told they are refused, not guessed."""
    _, first, middle, last = shape
    usual = [side in (1, 3) for side in (first, last)]
    if usual[0] != usual[1]:
        return usual[0]
    fewest = [first < min(middle, last), last < min(first, middle)]
    if fewest[0] != fewest[1] and not any(usual):
        return fewest[0]
    raise UserError(
        f"{where} has shape {shape}, of which nobody can tell where the channels are; make grey images (n, height, "
        "width) and others with 3 channels, or load them in Python: rebafl.from_arrays(…, layout='channels-last')."
    )


def from_arrays(
    name: str,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    clients: npt.NDArray[np.generic] | None = None,
    layout: Layout = "guess",
) -> Data:
    """A data set from `x_train`, `y_train`, `x_test` and `y_test`, with the names of its classes if there are any.

    Images are (n, height, width[, channels]), bytes or numbers; vectors are (n, features). Where no normalisation,
    `mean` and `std` by channel or feature, is given, that of the training inputs is used. Texts become hashed bags of
    words. `clients`, or an array `client_train`, says whose each training sample is, by a number or a name.
    """
    if all(is_text(arrays.get(key)) for key in ("x_train", "x_test")):
        arrays = {**arrays, **{key: hashed_words(arrays[key]) for key in ("x_train", "x_test")}}
        mean, std = (0.0,), (1.0,)
    clients = arrays.get("client_train") if clients is None else clients
    checked = check(arrays, name, layout)
    count = 1 + int(max(checked["y_train"].max(), checked["y_test"].max()))
    names = tuple(map(str, classes or range(count)))
    if twice := [one for one, times in Counter(names).items() if times > 1]:
        raise UserError(f"{name} has more than one class called {twice[0]!r}; give each another name.")
    if len(names) < count:
        raise UserError(f"{name} has labels up to {count - 1} but only {len(names)} classes.")
    if mean is None or std is None:
        mean, std = _moments(checked["x_train"])
    last = checked["x_train"].shape[-1]
    if not {len(mean), len(std)} <= {1, last}:
        raise UserError(f"{name}: mean and std need {last} numbers, one for each channel or feature, or one for all.")
    tensors = {key: torch.from_numpy(np.require(checked[key], requirements=["C", "W"])) for key in NAMES}
    size = tuple(tensors["x_train"].shape[1:])
    shape = (size[2], size[0], size[1]) if len(size) == 3 else size
    pixels = tensors["x_train"].dtype == torch.uint8
    inputs = Inputs(classes=names, shape=shape, mean=tuple(mean), std=tuple(std), pixels=pixels)
    return Data(
        name=name, inputs=inputs, client_train=_client_numbers(clients, len(checked["y_train"]), name), **tensors
    )


def _client_numbers(clients: npt.NDArray[np.generic] | None, samples: int, where: str) -> Tensor | None:
    """Clients counted from 0, in the order of their numbers or names."""
    if clients is None:
        return None
    if clients.shape != (samples,) or clients.dtype.kind not in "uiUSO":
        raise UserError(
            f"{where}: the clients must be one whole number or name for each of the {samples} training samples, not "
            f"{clients.dtype} of shape {clients.shape}."
        )
    if clients.dtype.kind == "O":
        clients = clients.astype(str)
    return torch.from_numpy(np.unique(clients, return_inverse=True)[1].astype(np.int64))


def _moments(x: npt.NDArray[np.generic]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    axes = tuple(range(x.ndim - 1)) if x.ndim == 4 else (0,)
    mean = x.mean(axis=axes, dtype=np.float64) / scale
    std = x.std(axis=axes, dtype=np.float64) / scale
    std = np.where(std > 0, std, 1.0)  # a constant channel or feature stays constant
    return tuple(map(float, mean)), tuple(map(float, std))
