"""Verdicts follow the rules."""

from dataclasses import replace

import pytest

from rebafl.paper import verdicts
from rebafl.paper.items import Claim
from support.paper import CLAIM, ITEM, made

ACROSS = Claim("two is above one", "best", pairs=(("every @ two", "every @ one"),))


@pytest.mark.parametrize(
    ("claim", "one", "two", "decision"),
    [
        (CLAIM, (80, 70), (80, 70), "held"),
        (CLAIM, (80, 70), (70, 80), "did not hold"),
        (CLAIM, (80, 70), (80.2, 80), "too close"),
        (CLAIM, (80, 70), None, "partly run"),
        (CLAIM, (70, 80), None, "did not hold"),
        (CLAIM, None, None, "not run"),
        (replace(CLAIM, where=("one",)), (80, 70), (70, 80), "held"),
        (replace(CLAIM, where=("one",)), (80, 70), None, "held"),
        (CLAIM, (80, 70), (79.5, 80), "too close"),  # half a point is not more than half a point
        (replace(CLAIM, margin=-3.0), (78, 80), (80, 70), "held"),
        (replace(CLAIM, margin=-3.0), (76, 80), (80, 70), "did not hold"),
        (replace(CLAIM, margin=3.0), (84, 80), (80, 70), "held"),
        (replace(CLAIM, margin=3.0), (82, 80), (80, 70), "did not hold"),
        (replace(CLAIM, bare=True), (80.01, 80), (80, 70), "held"),
        (ACROSS, (70, 60), (80, 70), "held"),
        (ACROSS, (70, 80), (80, 70), "did not hold"),
        (ACROSS, (70, 60), None, "not run"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), (12, 10), "held"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), (13, 10), "did not hold"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), None, "partly run"),
    ],
)
def test_verdicts_follow_the_rules(claim, one, two, decision):
    table = {"one": one, "two": two}

    def lookup(method, condition):
        return {0: made([table[condition]["ab".index(method)]])} if table[condition] else {}

    assert verdicts.judge(ITEM, claim, lookup).decision == decision


@pytest.mark.parametrize("margin", [0.0, -1.0, 3.0])
@pytest.mark.parametrize(("first", "decision"), [((75, 69, 68), "too close"), ((75, 73, 74), "held")])
def test_over_several_seeds_a_difference_must_exceed_its_standard_error(first, decision, margin):
    """+5, -1, -2 is +0.67 on average: more than half a point, and nothing. So it is with points that a claim names."""
    found = {"a": {n: made([v + margin]) for n, v in enumerate(first)}, "b": {n: made([70.0]) for n in range(3)}}
    verdict = verdicts.judge(ITEM, replace(CLAIM, margin=margin), lambda method, condition: found[method])
    assert verdict.decision == decision
    assert "3 seeds" in verdict.evidence
    assert verdict.seeds == 3


def test_a_verdict_says_on_how_many_seeds_it_rests():
    """What held, on the fewest of all that were compared; against a claim speaks what has the most seeds."""
    three, one = {n: made([80.0 + n]) for n in range(3)}, {0: made([90.0])}
    table = {("a", "one"): three, ("b", "one"): {n: made([70.0]) for n in range(3)}, ("a", "two"): one}
    held = verdicts.judge(ITEM, CLAIM, lambda *side: table.get(side, {0: made([60.0])}))
    assert (held.decision, held.number, held.seeds) == ("held", "+11.00 ± 0.58", 1)
    failed = verdicts.judge(ITEM, CLAIM, lambda *side: table.get((side[0].translate({97: 98, 98: 97}), side[1]), one))
    assert failed.decision == "did not hold"
    assert (failed.number, failed.seeds) == ("-11.00 ± 0.58", 3)


def test_methods_are_compared_on_the_seeds_both_have_and_others_means_all_others():
    found = {
        ("a", "one"): {0: made([80.0]), 1: made([10.0])},
        ("b", "one"): {0: made([70.0]), 2: made([99.0])},
        ("c", "one"): {0: made([79.9])},
    }
    claim, item = Claim("", "best", (("a", "others"),)), replace(ITEM, methods=("a", "b", "c"))
    verdict = verdicts.judge(item, claim, lambda method, condition: found.get((method, condition), {}))
    assert verdict.decision == "partly run"
    assert verdict.evidence == "one: a − c = +0.10; 2 of 4 comparisons not run"
    assert (verdict.number, verdict.of, verdict.seeds) == ("+0.10", "one: a − c", 1)


def test_the_number_is_of_a_comparison_that_decides():
    """A larger difference that its standard error hides decides nothing."""
    first = {"one": (73.0, 73.1, 73.2), "two": (60.0, 78.0, 68.0)}
    second = {"one": (74.0, 74.1, 74.2), "two": (70.0, 70.0, 70.0)}
    sides = {"a": first, "b": second}

    def lookup(method, condition):
        return {seed: made([value]) for seed, value in enumerate(sides[method][condition])}

    verdict = verdicts.judge(ITEM, CLAIM, lookup)
    assert verdict.decision == "did not hold"
    assert (verdict.number[:5], verdict.of) == ("-1.00", "one: a − b")
