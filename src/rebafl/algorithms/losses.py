"""Which softmax does a client train with? All are one log-softmax over adjusted logits, in log space.

An adjustment is computed once per round and shifted so that its largest entry is exactly zero: a uniform
prior then adds exact zeros, and plain cross entropy comes out bit for bit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def log_prior(counts: Tensor, eps: float) -> Tensor:
    """log(p̂ / max p̂) with p̂ = (1 - eps) n_c / n + eps / C; exactly -inf where p̂ is 0."""
    share = counts.to(torch.float64) / counts.sum()
    smoothed = (1 - eps) * share + eps / len(counts)
    return (smoothed / smoothed.max()).log()


def count_margin(counts: Tensor, tau: float) -> Tensor:
    """FedLC's -tau n_c^(-1/4), shifted so that the smallest margin is exactly 0; -inf where n_c is 0."""
    size = counts.to(torch.float64) ** -0.25
    margin = tau * (size - size.min())
    return torch.where(counts > 0, -margin, -torch.inf)


def adjusted_cross_entropy(logits: Tensor, labels: Tensor, adjustment: Tensor) -> Tensor:
    """Cross entropy of softmax(logits + adjustment)."""
    return F.cross_entropy(logits + adjustment.to(logits.dtype), labels)


def weighted_cross_entropy(logits: Tensor, labels: Tensor, adjustments: Tensor, weights: Tensor) -> Tensor:
    """The same with an adjustment and a weight for each sample: the weighted sum."""
    return torch.dot(F.cross_entropy(logits + adjustments.to(logits.dtype), labels, reduction="none"), weights)


def balanced_softmax(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Balanced softmax: the local class frequencies as a prior; classes without samples are masked."""
    return adjusted_cross_entropy(logits, labels, log_prior(counts, 0.0))


def relaxed_balanced_softmax(logits: Tensor, labels: Tensor, counts: Tensor, eps: float = 0.01) -> Tensor:
    """The paper's R-BSM: eps = 0 is balanced softmax, eps = 1 plain cross entropy.

    `counts` are the samples of each class that this client holds.
    """
    return adjusted_cross_entropy(logits, labels, log_prior(counts, eps))
