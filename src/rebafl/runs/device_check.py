"""Does a graphics card give what the processor gives? A few clients' rounds on both, compared."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Sent
from ..models.contract import load_weights
from ..training.client_work import Work
from ..training.evaluate import score_chunk
from ..training.resources import one_thread
from .experiment import prepare
from .settings import Settings, make_settings

CASES = (
    ("mlp", "fedavg"), ("fashion-cnn", "fedavg"), ("fashion-cnn", "rebafl"), ("fashion-cnn", "scaffold"),
    ("fashion-cnn", "moon"), ("fashion-cnn", "fedtrack"), ("resnet20-gn", "rebafl"),
)  # fmt: skip
FAR = 0.02
"""How far the two changes may be apart, over the length of the change: matrix products may be rounded to ten bits."""
ROUND = 1


@dataclass(frozen=True)
class Parity:
    """One case: how far the changes are apart, the difference of the accuracies, and how long a round takes."""

    model: str
    algorithm: str
    apart: float
    accuracy: float
    cpu_seconds: float
    device_seconds: float

    @property
    def good(self) -> bool:
        return self.apart <= FAR


def check_device(device: str, cases: Iterable[tuple[str, str]] = CASES) -> Iterator[Parity]:
    """Each case in turn; `device` is one that is there."""
    for model, algorithm in cases:
        settings = make_settings({
            "dataset": "fashion-mini", "model": model, "algorithm": algorithm,
            "partition": {"kind": "pathological", "samples": 200}, "training": {"epochs": 1, "transform": "crop-flip"},
        })  # fmt: skip
        with one_thread():
            yield _compared(_prepared(settings), device, model, algorithm)


def _prepared(settings: Settings) -> tuple[Work, Sent]:
    """A client's work and what it is sent in the first round."""
    experiment = prepare(settings, say=lambda text: None)
    server = experiment.first_server()
    return experiment.work, Sent(server.weights, experiment.settings.algorithm.broadcast(server))


def _compared(prepared: tuple[Work, Sent], device: str, model: str, algorithm: str) -> Parity:
    work, sent = prepared
    here, cpu_seconds = _round(work, sent)
    there, device_seconds = _round(replace(work, device=device), sent)
    difference = {name: there.change[name] - tensor for name, tensor in here.change.items()}
    apart = _length(difference) / max(_length(here.change), 1e-12)
    scores = [_accuracy(replace(work, device=d), sent, upload) for d, upload in (("cpu", here), (device, there))]
    return Parity(model, algorithm, apart, scores[1] - scores[0], cpu_seconds, device_seconds)


def _round(work: Work, sent: Sent) -> tuple[Upload, float]:
    """The second of two rounds is timed: the first prepares the device."""
    net = work.net()
    work.train(net, sent, 0, ROUND, None)
    began = time.perf_counter()
    upload, _ = work.train(net, sent, 0, ROUND, None)
    return upload, time.perf_counter() - began


def _length(tensors: Mapping[str, Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors.values()]).norm())


def _accuracy(work: Work, sent: Sent, upload: Upload) -> float:
    net = work.net()
    load_weights(net, {name: tensor + upload.change.get(name, 0) for name, tensor in sent.weights.items()})
    return score_chunk(net, work.data, 0).accuracy
