"""Where are clients trained, on the processor or on a graphics card? The one border that tensors cross, and back.

Nobody of this project has run it on a graphics card: tests hold the border with a stand-in device, on which every
tensor that was left behind is an error. `rebafl device-check` compares a real device with the processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Client, Sent
from ..base.errors import UserError
from ..base.tensors import Tensors

CPU, AUTO = "cpu", "auto"
WORDS = re.compile(r"cpu|mps|auto|cuda(:\d+)?")


def known_device(word: str) -> str:
    """Refuse what names no device."""
    if not WORDS.fullmatch(word):
        raise ValueError("there are cpu, cuda, cuda:N, mps and auto")
    return word


def resolve(word: str) -> str:
    """The device that a word means on this machine; one that is not there is refused."""
    if word == AUTO:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else CPU
    if word.startswith("cuda"):
        number, there = int(word.partition(":")[2] or 0), torch.cuda.device_count()
        if number >= there:
            raise UserError(f"device = {word!r}: torch sees {there} CUDA devices here; use device=cpu or device=auto.")
    elif word == "mps" and not torch.backends.mps.is_available():
        raise UserError("device = 'mps': torch has no Metal here; use device=cpu or device=auto.")
    return word


def described(device: str) -> str:
    """For the record and for reports: with the maker's name where there is one."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device


def device_of(net: nn.Module) -> torch.device:
    return next((parameter.device for parameter in net.parameters()), torch.device(CPU))


@contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Tensors that are made meanwhile, by this package or by own code, are made there."""
    if device == CPU:
        yield
        return
    with torch.device(device):
        yield


def moved_to(tensors: Mapping[str, Tensor], device: str) -> Tensors:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def sent_to(sent: Sent, device: str) -> Sent:
    """The client's own copy: what an algorithm writes into it reaches neither the next client nor the server."""
    weights, extra = (
        {name: tensor.to(device, copy=True) for name, tensor in group.items()} for group in (sent.weights, sent.extra)
    )
    return replace(sent, weights=weights, extra=extra)


def client_on(client: Client, device: str) -> Client:
    """With its data, its state and the noise of its protections there."""
    if device == CPU:
        return client
    return replace(
        client,
        inputs=client.inputs.to(device),
        labels=client.labels.to(device),
        counts=client.counts.to(device),
        black=client.black.to(device),
        state=None if client.state is None else moved_to(client.state, device),
        noise=lambda shape: client.noise(shape).to(device),
    )


def brought_back(upload: Upload, state: Tensors, device: str) -> tuple[Upload, Tensors]:
    """What leaves a client is on the processor, where it is checked and averaged."""
    if device == CPU:
        return upload, state
    change, shared = moved_to(upload.change, CPU), moved_to(upload.shared, CPU)
    return replace(upload, change=change, shared=shared, counts=upload.counts.to(CPU)), moved_to(state, CPU)
