"""Claims are judged by every number that the paper may have printed."""

from dataclasses import replace

import pytest

from rebafl.paper.items import Claim
from rebafl.paper.readings import DECISIONS, DEPENDS, Reading, read_claim
from rebafl.paper.verdicts import Verdict
from support.paper import CLAIM, ITEM, made

ONE = replace(ITEM, conditions={"one": ""})


@pytest.mark.parametrize(
    ("second_half", "best", "together"),
    [
        ("held", "held", "held"),
        ("did not hold", "did not hold", "did not hold"),
        ("held", "did not hold", "depends"),
        ("did not hold", "held", "depends"),
        ("held", "too close", "depends"),
        ("too close", "too close", "too close"),
        ("partly run", "did not hold", "partly run"),
        ("did not hold", "partly run", "partly run"),
        ("not run", "not run", "not run"),
    ],
)
def test_a_verdict_is_what_both_measures_decide(second_half, best, together):
    reading = Reading(CLAIM, {"second_half": Verdict(second_half), "best": Verdict(best)})
    assert reading.decision == together
    assert together in DECISIONS


def test_a_peak_that_the_second_half_does_not_confirm_decides_nothing():
    """The first method has the best round, the other is ahead all the time."""
    curves = {"a": [50.0, 50.0, 90.0, 50.0], "b": [80.0] * 4}
    reading = read_claim(ONE, CLAIM, lambda method, condition: {0: made(curves[method])})
    assert reading.decision == DEPENDS
    assert {name: verdict.decision for name, verdict in reading.by_measure.items()} == {
        "second_half": "did not hold",
        "best": "held",
    }
    assert (reading.first.number, reading.first.of) == ("-10.00", "one: a − b")
    assert reading.by_measure["best"].number == "+10.00"


def test_a_claim_with_a_measure_of_its_own_is_judged_by_that_alone():
    claim = Claim("a ends above b", "last10", pairs=(("a", "b"),))
    curves = {"a": [90.0] + [50.0] * 11, "b": [10.0] + [60.0] * 11}
    reading = read_claim(ONE, claim, lambda method, condition: {0: made(curves[method])})
    assert list(reading.by_measure) == ["last10"]
    assert reading.decision == "did not hold"


def test_the_other_model_is_named_only_where_it_decides_otherwise():
    """b by its clients' mean is ahead of a; its cloud model is behind in the second half and level in the best."""
    b = made([70.0, 80.0, 80.0, 80.0], cloud_accuracy=[70.0, 75.0, 60.0, 60.0])
    found = {"a": {0: made([60.0, 75.0, 75.0, 75.0])}, "b": {0: b}}
    reading = read_claim(ONE, CLAIM, lambda method, condition: found[method])
    assert reading.decision == "did not hold"
    assert {name: verdict.decision for name, verdict in reading.by_cloud.items()} == {
        "second_half": "held",
        "best": "too close",
    }
    same = {"a": {0: made([60.0] * 4)}, "b": {0: replace(b, curves={**b.curves, "cloud_accuracy": [70.0] * 4})}}
    assert not read_claim(ONE, CLAIM, lambda method, condition: same[method]).by_cloud
