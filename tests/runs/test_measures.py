"""Each measure of a run, by hand."""

import pytest

from rebafl.runs import measures

CURVE = [50.0, 90.0] + [70.0, 80.0] * 5


def test_measures_by_hand():
    assert measures.best(CURVE) == 90.0
    assert measures.best_round(CURVE) == 2
    assert measures.last_ten(CURVE) == 75.0
    assert measures.last_ten_std(CURVE) == 5.0
    assert measures.second_half([0.0, 0.0, 10.0, 20.0]) == 15.0
    assert measures.swing(CURVE) == 10.0


def test_short_runs_are_measured_too():
    assert measures.last_ten([40.0, 50.0]) == 45.0
    assert (measures.best([5.0]), measures.second_half([5.0]), measures.swing([5.0])) == (5.0, 5.0, 0.0)


def test_swing_is_of_rounds_and_not_of_what_is_learned():
    """A curve that only rises is steady, however steep; its standard deviation would say otherwise."""
    assert measures.swing([float(number) for number in range(20)]) == 1.0
    assert measures.swing([0.0, 0.0, 10.0, 4.0, 9.0, 9.0]) == pytest.approx(2.5), "the second half only"


def test_the_last_ten_of_fewer_are_called_what_they_are():
    assert measures.tail_name(10) == measures.tail_name(200, 11) == "last 10"
    assert measures.tail_name(3) == measures.tail_name(3, 3) == "last 3"
    assert measures.tail_name(3, 7) == "last 3 to 7"
    assert measures.tail_name(3, 200) == "last 3 to 10"
