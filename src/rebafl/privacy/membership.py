"""Was an image trained on? Membership inference from the change of the weights: what FedAvg gives away anyway.

Three simple scores: the loss after training, how much training lowered it, and how well the change of the head follows
the image's own gradient. None of them trains shadow models: this is not LiRA, and a stronger attack may find more.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from .measures import FPR, Numbers, auc, tpr_at

WAYS = ("loss", "loss difference", "gradient alignment")


def losses(logits: Tensor, label: int) -> Tensor:
    return F.cross_entropy(logits.double(), torch.full((len(logits),), label), reduction="none")


def alignment(features: Tensor, logits: Tensor, label: int, weight: Tensor, bias: Tensor | None) -> Tensor:
    """−⟨∇loss(x), Δw⟩ over a linear head: features and logits of the model before, the change of weight and bias."""
    wrong = logits.double().softmax(1)
    wrong[:, label] -= 1
    along = features.double() @ weight.double().T
    return -(wrong * (along if bias is None else along + bias.double())).sum(1)


def scores(
    before: tuple[Tensor, Tensor], after: Tensor, label: int, change: Mapping[str, Tensor]
) -> dict[str, Numbers]:
    """By name, one score per image, higher for members. `before`: features and logits; `after`: logits."""
    features, logits = before
    last = losses(after, label)
    found = {"loss": -last, "loss difference": losses(logits, label) - last}
    weight = change.get("head.weight")
    if weight is not None and tuple(weight.shape) == (logits.shape[1], features.shape[1]):
        found["gradient alignment"] = alignment(features, logits, label, weight, change.get("head.bias"))
    return {name: score.numpy() for name, score in found.items()}


def told_apart(members: Numbers, fakes: Numbers, others: Numbers, fpr: float = FPR) -> tuple[float, float, float]:
    """AUC and TPR of members, and the AUC of fake members."""
    return auc(members, others), tpr_at(members, others, fpr), auc(fakes, others)
