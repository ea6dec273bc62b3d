"""The numbers of an audit, held against what is known in closed form."""

import math

import numpy as np
import pytest

from rebafl.base.errors import UserError
from rebafl.privacy.measures import Risk, auc, dimensions_of, estimate, read_risk, theory_auc, theory_tpr, tpr_at


def test_auc_counts_pairs_and_halves_ties():
    random = np.random.default_rng(0)
    members, others = random.integers(0, 9, 50).astype(float), random.integers(0, 7, 40).astype(float)
    pairs = [(m > o) + 0.5 * (m == o) for m in members for o in others]
    assert auc(members, others) == pytest.approx(np.mean(pairs))


def test_tpr_allows_no_more_false_positives_than_asked():
    others = np.arange(1000.0)
    assert tpr_at(np.array([989.0, 989.5, 2000.0]), others, 0.01) == pytest.approx(2 / 3)
    assert (others > 989).mean() == 0.01
    assert tpr_at(np.zeros(5), np.zeros(1000), 0.01) == 0  # ties are no detection


def test_intervals_cover_as_often_as_they_say():
    random = np.random.default_rng(1)
    for units in (5, 15):
        covered = [estimate(random.normal(0.5, 0.05, units).tolist(), seed).covers(0.5) for seed in range(300)]
        assert 0.88 <= np.mean(covered) <= 0.99


def test_shared_non_members_widen_an_interval():
    values = [0.5, 0.51, 0.49, 0.5, 0.5]
    alone, shared = estimate(values), estimate(values, shared=1000)
    assert shared.low < alone.low < alone.high < shared.high
    assert (shared.high - shared.low) / 2 >= 1.96 * math.sqrt(1 / 12000)


def test_clients_held_against_the_same_non_members_need_the_wider_interval():
    random = np.random.default_rng(2)
    alone, shared = [], []
    for seed in range(200):
        others = random.normal(size=300)
        aucs = [auc(random.normal(size=200), others) for _ in range(10)]  # nothing tells members apart
        alone.append(estimate(aucs, seed).covers(0.5))
        shared.append(estimate(aucs, seed, shared=300).covers(0.5))
    assert np.mean(alone) < 0.9
    assert np.mean(shared) >= 0.93


def test_the_k_that_keeps_a_risk_keeps_it():
    risk = read_risk("tpr=0.05@fpr=0.01")
    k = risk.least_k(128)
    assert theory_tpr(128, k, 0.01) == pytest.approx(0.05)
    assert 275 < k < 277
    assert dimensions_of(theory_tpr(77, 50), 50) == pytest.approx(77)
    assert theory_auc(128, 10) == pytest.approx(0.9943, abs=1e-4)
    assert Risk(0.01, 0.01).least_k(10) == math.inf


@pytest.mark.parametrize(
    "text", ["", "tpr=0.05", "tpr=2@fpr=0.01", "tpr=0.01@fpr=0.05", "tpr=a@fpr=b", "tpr=1.2.3@fpr=0"]
)
def test_a_risk_that_cannot_be_is_refused(text):
    with pytest.raises(UserError, match=r"tpr=0\.05@fpr=0\.01"):
        read_risk(text)
