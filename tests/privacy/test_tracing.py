"""The tracing attack on features whose answer is known, and sabotaged."""

import numpy as np
import pytest

from rebafl.privacy.measures import theory_auc
from rebafl.privacy.tracing import disjoint, synthetic, whitening


@pytest.mark.parametrize(("dimensions", "k"), [(32, 10), (32, 50), (64, 10), (64, 50), (64, 100)])
def test_synthetic_features_are_traced_as_well_as_theory_says(dimensions, k):
    found = synthetic(dimensions, k, clients=10)
    assert abs(found.auc.value - theory_auc(dimensions, k)) <= 0.03
    assert found.fakes.low - 0.02 <= 0.5 <= found.fakes.high + 0.02
    assert abs(found.permuted.value - 0.5) <= 0.06


def test_a_sabotaged_score_traces_nothing():
    blind = synthetic(32, 1, clients=10, score=lambda images, mean, k: np.zeros(len(images)))
    assert blind.auc.value == 0.5
    assert blind.tpr.value == 0


def test_whitening_gives_unit_covariance_and_survives_dead_features():
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 6)) @ random.normal(size=(6, 6))
    rows[:, 2] = 1.0
    white = whitening(rows)
    assert np.isfinite(white(rows)).all()
    values = np.linalg.eigvalsh(np.cov(white(rows).T))
    assert np.allclose(values[1:], 1, atol=0.05) or values[-1] <= 1.01
    few = whitening(random.normal(size=(4, 50)))  # fewer images than features
    assert np.abs(few(random.normal(size=(10, 50)))).max() < 100


def test_groups_are_disjoint_and_the_same_in_every_round():
    groups = disjoint(100, 10, 0, 3, 1)
    assert len(groups) == 10
    assert sorted(np.concatenate(groups)) == list(range(100))
    assert all((a == b).all() for a, b in zip(groups, disjoint(100, 10, 0, 3, 1), strict=True))
    assert disjoint(5, 10, 0, 0, 0) == []
