"""What does a device do in a round? This is the only training loop in the project."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Algorithm, Batch, Device, Sent, Training
from ..base.tensors import Tensors
from ..models.contract import Classifier, Part, load_weights, part_of


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread for a while: sums depend in their last bits on how threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


def keep_memory() -> None:
    """Let glibc keep what this process frees, up to a gigabyte, for its next allocation.

    Left alone it may hand the activations of every step back to the kernel and fetch empty pages again:
    hundreds of page faults a step, up to a fifth of the time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library than glibc
        for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**30), (M_TOP_PAD, 2**26)):
            mallopt(option, size)


PAD = 4  # pixels of border for the random crop


def train(net: Classifier, algorithm: Algorithm, sent: Sent, device: Device) -> tuple[Upload, Tensors]:
    """One client's round, in any engine: receive, train, hand back the upload and the next state."""
    load_weights(net, sent.weights)
    net.eval()
    context = algorithm.start(net, sent, device)
    steps = fit(
        net,
        device,
        algorithm.trains,
        lambda batch: algorithm.loss(net, batch, context),
        lambda: algorithm.correct(net, context),
    )
    net.eval()
    return algorithm.finish(net, context, steps)


def fit(
    net: Classifier,
    device: Device,
    trains: Callable[[Part], bool],
    loss: Callable[[Batch], Tensor],
    correct: Callable[[], None] = lambda: None,
) -> int:
    """Minimise `loss` over the device's data; how many steps that took."""
    steps, settings = 0, device.training
    with _only(net, trains) as parameters:
        optimiser = SGD(parameters, settings)
        _train_mode(net, trains)
        for batch in batches(device):
            optimiser.zero_grad()
            torch.autograd.backward(loss(batch))
            correct()
            optimiser.step()
            steps += 1
    return steps


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


def _train_mode(net: Classifier, trains: Callable[[Part], bool]) -> None:
    """Parts that are not trained neither draw random numbers nor move running statistics."""
    net.train(trains("features"))
    net.head.train(trains("head"))


@contextmanager
def _only(net: Classifier, trains: Callable[[Part], bool]) -> Iterator[list[nn.Parameter]]:
    """Freeze the parts that are not trained for a while; what a model froze itself stays frozen."""
    frozen = [p for name, p in net.named_parameters() if p.requires_grad and not trains(part_of(name))]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield [parameter for parameter in net.parameters() if parameter.requires_grad]
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        net.zero_grad()


def batches(device: Device) -> Iterator[Batch]:
    """All steps of a round: each epoch in a new order, gathered and transformed a batch at a time."""
    training, random = device.training, device.shuffle
    crop = training.transform == "crop-flip"
    source = _bordered(device) if crop else _rows(device.inputs)
    for _ in range(training.epochs):
        order = torch.from_numpy(random.permutation(len(device.labels)))
        for index in torch.split(order, training.batch):
            chosen = source.index_select(0, index)
            x = _crop_flip(chosen, random) if crop else chosen
            yield Batch(x.permute(0, 3, 1, 2) if x.dim() == 4 else x, device.labels[index], index)


def _rows(inputs: Tensor) -> Tensor:
    """Images with the channels last in shape too, so that gathering rows keeps the memory layout."""
    return inputs.permute(0, 2, 3, 1).contiguous() if inputs.dim() == 4 else inputs


def _bordered(device: Device) -> Tensor:
    """All images with a black border, made once a round."""
    rows = _rows(device.inputs)
    count, height, width, channels = rows.shape
    wide = device.black.expand(count, height + 2 * PAD, width + 2 * PAD, channels).clone()
    wide[:, PAD:-PAD, PAD:-PAD] = rows
    return wide


def _crop_flip(wide: Tensor, random: np.random.Generator) -> Tensor:
    """A random window of each image, mirrored half the time; the whole batch at once."""
    count, height, width, _ = wide.shape
    corner = torch.from_numpy(random.integers(0, 2 * PAD + 1, size=(2, count)))
    mirrored = torch.from_numpy(random.random(count) < 0.5)
    rows = corner[0][:, None] + torch.arange(height - 2 * PAD)
    columns = torch.arange(width - 2 * PAD)
    columns = corner[1][:, None] + torch.where(mirrored[:, None], columns.flip(0), columns)
    return wide[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
