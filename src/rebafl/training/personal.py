"""How good is a model for each client? On test samples as the client's own: its classes, as often as it holds them.

Asked of the global model as it is, which follows from its recall of each class, and after every client has trained it a
little further on its own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ..base.rng import generator, torch_stream
from ..base.tensors import Tensors
from ..models.contract import CHUNK, Classifier, evaluating, load_weights
from .client_work import Work
from .device import client_on, computing_on, device_of
from .loop import fit

Recall = Sequence[float | None]
"""Percent for each class; None for a class that was not looked at."""


def accuracy_for(counts: npt.NDArray[np.int64], recall: Recall) -> float | None:
    """Percent of test samples whose classes are as frequent as in these counts; None if none of them has a recall."""
    pairs = [(int(n), value) for n, value in zip(counts, recall, strict=True) if n and value is not None]
    held = sum(n for n, _ in pairs)
    return sum(n * value for n, value in pairs) / held if held else None


def tuned_recall(work: Work, net: Classifier, weights: Tensors, client: int, round: int, epochs: int) -> Recall:
    """The recall of a client's own classes after it has fine-tuned these weights by plain cross entropy.

    What the client does besides, in its rounds, is not touched: it draws from a stream of its own.
    """
    load_weights(net, weights)
    training = replace(work.training, epochs=epochs, epochs_least=0)
    own = work.client_of(client, work.split.indices(client), training, round)
    own = client_on(replace(own, shuffle=generator(work.seed, "tune", round, client)), work.device)
    with torch_stream(work.seed, "tune", round, client, work.device), computing_on(work.device):
        fit(net, own, lambda part: True, lambda batch: F.cross_entropy(net(batch.x), batch.y))
    return _recall(work, net, torch.from_numpy(np.flatnonzero(work.split.counts(client))))


def _recall(work: Work, net: Classifier, classes: torch.Tensor) -> Recall:
    data = work.data
    index = torch.isin(data.y_test, classes).nonzero().flatten()
    labels = data.y_test[index]
    with evaluating(net):
        found = [
            net(data.inputs(data.x_test[part]).to(device_of(net))).argmax(1).cpu() for part in torch.split(index, CHUNK)
        ]
    count = len(data.classes)
    total = labels.bincount(minlength=count).tolist()
    right = labels[torch.cat(found) == labels].bincount(minlength=count).tolist()
    return [100.0 * c / n if n else None for c, n in zip(right, total, strict=True)]
