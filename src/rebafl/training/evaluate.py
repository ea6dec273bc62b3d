"""How good is a model? Scored on the test set, or validation part, in fixed chunks: any number of workers agrees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..algorithms.aggregate import weighted_mean_of
from ..data import Data
from ..models.contract import CHUNK, Classifier, evaluating
from .device import device_of

ScoredPart = Literal["test", "validation"]


@dataclass(frozen=True)
class Score:
    """What was counted on some test samples; scores of disjoint samples add up."""

    correct: tuple[int, ...]
    total: tuple[int, ...]
    loss: float

    @property
    def accuracy(self) -> float:
        """Percent of all samples."""
        return 100.0 * sum(self.correct) / sum(self.total)

    @property
    def recall(self) -> list[float | None]:
        """Percent for each class; None for a class without test samples."""
        return [100.0 * c / n if n else None for c, n in zip(self.correct, self.total, strict=True)]

    @property
    def mean_loss(self) -> float:
        return self.loss / sum(self.total)


def chunks(data: Data, part: ScoredPart = "test") -> int:
    held = data.y_test if part == "test" else _held_out(data)
    return -(-len(held) // CHUNK)


def score_chunk(net: Classifier, data: Data, number: int, part: ScoredPart = "test") -> Score:
    """The score on one chunk of the test set, or of the validation part."""
    where = slice(number * CHUNK, (number + 1) * CHUNK)
    if part == "test":
        raw, labels = data.x_test[where], data.y_test[where]
    else:
        index = _held_out(data)[where]
        raw, labels = data.x_train[index], data.y_train[index]
    with evaluating(net):
        logits = net(data.inputs(raw).to(device_of(net))).cpu()
    hits = labels[logits.argmax(1) == labels]
    classes = len(data.classes)
    return Score(
        tuple(hits.bincount(minlength=classes).tolist()),
        tuple(labels.bincount(minlength=classes).tolist()),
        float(F.cross_entropy(logits.to(torch.float64), labels, reduction="sum")),
    )


def _held_out(data: Data) -> Tensor:
    assert data.validation is not None  # nobody asks for it unless the settings do
    return data.validation


def total(scores: Sequence[Score]) -> Score:
    """The score on all chunks, added in their order."""
    return Score(
        tuple(map(sum, zip(*(score.correct for score in scores), strict=True))),
        tuple(map(sum, zip(*(score.total for score in scores), strict=True))),
        sum(score.loss for score in scores),
    )


def diversity(changes: Sequence[Mapping[str, Tensor]], names: Iterable[str]) -> float:
    """The paper's Λ: the mean squared distance of the local models from their (unweighted) average."""
    squares = []
    for name in names:
        centre = weighted_mean_of(name, changes, [1.0] * len(changes))
        apart = torch.empty_like(centre)
        for change in changes:
            # contiguous, and added exactly: the order of terms, in memory or by name, must not show in the last bits
            torch.sub(change[name], centre, out=apart)
            squares.append(float(apart.square_().sum()))
    return math.fsum(squares) / len(changes)
