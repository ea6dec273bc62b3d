"""Paired differences, against published values of Student's t and a case that was computed by hand."""

import math

import pytest

from rebafl.runs.paired import paired, student_quantile, student_two_sided


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)]
)
def test_quantiles_of_the_published_table(freedom, value):
    assert student_quantile(0.975, freedom) == pytest.approx(value, abs=5e-4)
    assert student_two_sided(value, freedom) == pytest.approx(0.05, abs=1e-4)


def test_the_chances_have_closed_forms_for_one_and_two_degrees_of_freedom():
    for t in (0.0, 1e-3, 0.5, 1.0, 3.0, 40.0, 1e4):
        assert student_two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
        assert student_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
        assert student_two_sided(-t, 7) == student_two_sided(t, 7)


def test_a_difference_by_hand():
    found = paired({0: 81.0, 1: 84.0, 2: 84.0, 9: 0.0}, {2: 81.0, 1: 82.0, 0: 80.0, 5: 99.0})
    # differences 1, 2, 3: mean 2, standard error 1/√3, t = 2√3 with two degrees of freedom
    assert (found.seeds, found.difference) == (3, 2.0)
    assert found.high - found.difference == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert found.difference - found.low == pytest.approx(found.high - found.difference)
    assert found.p == pytest.approx(1 - 2 * math.sqrt(3) / math.sqrt(14))


def test_pairs_belong_together_by_seed_and_not_by_order():
    ours, theirs = {0: 50.0, 1: 90.0}, {1: 89.0, 0: 49.0}
    assert paired(ours, theirs) == paired(dict(reversed(ours.items())), theirs)
    assert paired(ours, theirs).difference == paired(ours, theirs).low == 1.0
    assert paired(ours, theirs).p == 0.0
    assert paired(ours, ours).p == 1.0


def test_one_common_seed_says_nothing():
    assert paired({0: 1.0, 1: 2.0}, {1: 5.0, 2: 5.0}) is None
    assert paired({}, {}) is None
