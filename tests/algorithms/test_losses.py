"""The softmax family: hand-computed numbers, exact limits, and the paper's gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from rebafl import balanced_softmax, relaxed_balanced_softmax
from rebafl.algorithms.losses import log_prior

LOGITS = torch.tensor([[1.0, 2.0, -0.5, 0.3], [0.2, -1.0, 0.4, 0.0]])
LABELS = torch.tensor([1, 0])
COUNTS = torch.tensor([3, 1, 0, 0])


def test_by_hand():
    """p̂ = 0.9 (3/4, 1/4, 0, 0) + 0.1/4 = (0.7, 0.25, 0.025, 0.025)."""
    prior = [0.7, 0.25, 0.025, 0.025]
    expected = 0.0
    for row, label in zip(LOGITS.tolist(), LABELS.tolist(), strict=True):
        scores = [p * math.exp(z) for p, z in zip(prior, row, strict=True)]
        expected -= math.log(scores[label] / sum(scores)) / 2
    found = relaxed_balanced_softmax(LOGITS.double(), LABELS, COUNTS, eps=0.1)
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_eps_one_is_cross_entropy_to_the_bit():
    assert torch.equal(relaxed_balanced_softmax(LOGITS, LABELS, COUNTS, 1.0), F.cross_entropy(LOGITS, LABELS))


def test_eps_zero_is_balanced_softmax_to_the_bit():
    assert torch.equal(relaxed_balanced_softmax(LOGITS, LABELS, COUNTS, 0.0), balanced_softmax(LOGITS, LABELS, COUNTS))


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_equal_counts_add_exact_zeros(count, eps):
    assert torch.equal(log_prior(torch.full((10,), count), eps), torch.zeros(10, dtype=torch.float64))


def test_missing_classes_are_masked_exactly():
    """With eps = 0 a class without samples gets no gradient at all, not a small one."""
    logits = LOGITS.clone().requires_grad_()
    balanced_softmax(logits, LABELS, COUNTS).backward()
    assert torch.equal(logits.grad[:, 2:], torch.zeros(2, 2))
    assert (logits.grad[:, :2] != 0).all()


def test_one_class_alone_has_no_loss_and_no_gradient():
    logits = LOGITS.clone().requires_grad_()
    loss = balanced_softmax(logits, torch.tensor([1, 1]), torch.tensor([0, 5, 0, 0]))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros_like(LOGITS))


@given(st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_equal_counts_over_the_held_classes_are_a_softmax_over_them(eps, seed):
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    labels = torch.tensor([0, 1, 0])
    found = balanced_softmax(logits, labels, torch.tensor([7, 7, 0, 0, 0]))
    assert found.item() == pytest.approx(F.cross_entropy(logits[:, :2], labels).item(), abs=1e-10)


def test_the_update_of_proxies_and_features_is_the_papers():
    """Eqs. "gradient of classifier" and "gradient of feature", term by term, and the proxies' sum does not move."""
    make = torch.Generator().manual_seed(0)
    features = torch.randn(6, 3, generator=make, dtype=torch.float64, requires_grad=True)
    proxies = torch.randn(4, 3, generator=make, dtype=torch.float64, requires_grad=True)
    labels, eta, n = torch.tensor([0, 0, 0, 1, 1, 0]), 0.1, 6
    counts = labels.bincount(minlength=4)
    relaxed_balanced_softmax(features @ proxies.T, labels, counts, eps=0.05).backward()
    prior = 0.95 * counts / n + 0.05 / 4
    q = prior * (features @ proxies.T).exp()
    q = (q / q.sum(1, keepdim=True)).detach()
    for c in range(4):
        nothing = torch.zeros(3, dtype=torch.float64)
        pull = sum(((1 - q[j, c]) * features[j] for j in range(n) if labels[j] == c), nothing)
        push = sum((q[j, c] * features[j] for j in range(n) if labels[j] != c), nothing)
        assert torch.allclose(-eta * proxies.grad[c], eta / n * (pull - push), atol=1e-10)
    for j in range(n):
        y = labels[j]
        step = (1 - q[j, y]) * proxies[y] - sum(q[j, c] * proxies[c] for c in range(4) if c != y)
        assert torch.allclose(-eta * features.grad[j], eta / n * step, atol=1e-10)
    assert torch.allclose(proxies.grad.sum(0), torch.zeros(3, dtype=torch.float64), atol=1e-10)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=8).filter(any), st.floats(0, 1))
def test_a_prior_is_never_nan_and_its_largest_entry_is_zero(counts, eps):
    prior = log_prior(torch.tensor(counts), eps)
    assert prior.max() == 0
    assert not prior.isnan().any()
