"""What does a class look like to the feature extractor, and how are features moved from class to class?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PROTOTYPES = "prototypes"
"""The name under which an upload shares the mean feature of each class, one row per class; protections go by it."""


def class_prototypes(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean feature of each class, one row per class; zeros where a class has no sample."""
    member = F.one_hot(labels, classes).to(torch.float64)
    total = member.T @ features.to(torch.float64)
    return (total / member.sum(0).clamp(min=1).unsqueeze(1)).to(features.dtype)


def cycled_targets(available: Tensor, length: int) -> Tensor:
    """The available classes over and over, by position in the batch."""
    return available[torch.arange(length) % len(available)]


def transfer_features(
    features: Tensor, labels: Tensor, prototypes: Tensor, targets: Tensor, lam: float = 1.0
) -> Tensor:
    """Move each feature to its target class: p_target + lam (h - p_label). No gradient flows back."""
    return prototypes[targets] + lam * (features.detach() - prototypes[labels])


def within_class_std(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """The spread around the own prototype, one number per feature dimension, shared by all classes."""
    return (features - prototypes[labels]).to(torch.float64).square().mean(0).sqrt().to(features.dtype)
