"""Which method was best, in cases that can be seen at a glance."""

import math
from dataclasses import replace

import pytest

from rebafl.advice.verdict import Lead, judge, judge_stateless
from support.advice import entry


def test_the_best_and_its_leads_the_smallest_first():
    verdict = judge([entry("fedavg", 60.0, 62.0), entry("rebafl", 70.0, 74.0), entry("fedrs", 69.0, 70.0)])
    assert verdict.best.name == "rebafl"
    assert [(lead.over.name, lead.mean) for lead in verdict.leads] == [("fedrs", 2.5), ("fedavg", 11.0)]
    assert [lead.over.name for lead in verdict.deciding] == ["fedrs", "fedavg"]
    assert verdict.leads[0].error == pytest.approx(1.5)  # differences 1 and 4: std 3/√2, over √2


@pytest.mark.parametrize(
    ("ours", "theirs", "close", "sure"),
    [
        ([70.0], [69.5], True, "too close, one seed"),
        ([70.0], [69.4], False, "one seed"),
        ([70.0, 70.0], [69.4, 69.3], False, "clear, 2 seeds"),
        ([70.0, 70.0], [69.0, 65.0], False, "not clear, 2 seeds"),  # differences 1 and 5: 3 ± 2
        ([70.0, 70.0], [71.0, 65.0], True, "too close, 2 seeds"),  # differences -1 and 5: 2 ± 3
        ([70.0] * 5, [66.0, 66.5, 67.0, 65.5, 65.0], False, "clear, 5 seeds"),
    ],
)
def test_how_sure_it_is(ours, theirs, close, sure):
    lead = Lead(entry("a", *ours), entry("b", *theirs))
    assert (lead.close, lead.sure) == (close, sure)


def ending(method, late):
    """The same, but for its last ten rounds, seed by seed."""
    pairs = zip(method.cells.items(), late, strict=True)
    return replace(method, cells={seed: cell._replace(last=last) for (seed, cell), last in pairs})


def test_a_lead_that_the_last_rounds_turn_around_is_too_close():
    ours, theirs = entry("fedtrack", 56.7), entry("feddyn", 55.7)
    assert not judge([ours, theirs]).leads[0].close
    verdict = judge([ending(ours, [59.3]), ending(theirs, [59.7]), entry("fedavg", 40.0)])
    assert verdict.names == "fedtrack or feddyn"
    assert verdict.lead == "too close, one seed, of 3 methods; -0.4 in the last ten rounds"
    assert " In the last ten rounds: -0.4 over feddyn. " in verdict.sentence(lambda each: each.name)


def test_what_is_left_of_a_lead_at_the_end_is_said_and_over_whom():
    """FedDyn is the next over the second half, FedRS in the last ten rounds; over two seeds."""
    verdict = judge(
        [ending(entry("rebafl", 70.0, 72.0), [71.0, 73.0]), ending(entry("feddyn", 66.0, 68.0), [65.0, 66.0]),
         ending(entry("fedrs", 65.0, 66.0), [70.0, 71.0])]
    )  # fmt: skip
    assert (verdict.leads[0].over.name, verdict.leads[0].mean, verdict.leads[0].late) == ("feddyn", 4.0, 6.5)
    assert verdict.lead == "+4.0 ± 0.0, clear, 2 seeds, of 3 methods; +1.5 over fedrs in the last ten rounds"
    assert " In the last ten rounds: +1.5 over fedrs. " in verdict.sentence(lambda each: each.name)


def test_a_lead_is_turned_around_by_what_can_be_seen_and_nothing_is_minus_zero():
    for end, turned in ((64.96, False), (64.9, True)):
        verdict = judge([ending(entry("rebafl", 70.0), [end]), ending(entry("fedavg", 65.0), [65.0])])
        assert verdict.leads[0].close is turned
        said = "too close, one seed, of 2 methods; -0.1" if turned else "+5.0, one seed, of 2 methods; +0.0"
        assert verdict.lead == f"{said} in the last ten rounds"


def test_where_a_rival_is_too_close_its_number_stands_there_though_another_lead_is_smaller():
    """FedDyn's three seeds lie far apart; ReBaFL is 0.8 behind on each."""
    verdict = judge([entry("fedtrack", 80.0, 80.0, 80.0), entry("rebafl", 79.2, 79.2, 79.3),
                     entry("feddyn", 79.0, 70.0, 85.0)])  # fmt: skip
    assert verdict.names == "fedtrack or feddyn"
    assert [lead.over.name for lead in verdict.leads] == ["feddyn", "rebafl"]
    assert verdict.sure == "too close, 3 seeds, of 3 methods"


def test_of_methods_that_nobody_is_ahead_of_the_one_compared_with_most_is_best():
    """ReBaFL's higher mean is of another seed than FedTrack's."""
    verdict = judge(
        [entry("fedavg", 50.0, 70.0), entry("fedtrack", 65.0), entry("moon", 40.0), entry("rebafl", seed1=71.0)]
    )
    assert (verdict.best.name, verdict.compared) == ("fedtrack", 3)
    said = judge([entry("rebafl", 70.0, 74.0), entry("fedavg", 60.0)]).sentence(lambda each: each.name)
    assert ": 72.0 ± 2.8 over 2 seeds, +10.0 over fedavg (one seed)." in said


def test_what_one_of_a_circle_is_behind_it_is_not_ahead_of():
    circle = [entry("fedavg", seed0=50.0, seed2=60.0), entry("rebafl", seed0=48.0, seed1=50.0),
              entry("feddyn", seed1=48.0, seed2=66.0)]  # fmt: skip
    verdict = judge(circle)
    assert (verdict.best.name, verdict.leads[0].mean, verdict.leads[0].close) == ("feddyn", -2.0, True)
    assert verdict.names == "feddyn or rebafl"
    assert verdict.sentence(lambda each: each.name).startswith("feddyn is not clearly ahead of 2 other methods: ")


def test_methods_that_rest_on_fewer_seeds_are_counted_beside_those_that_do_not():
    verdict = judge([entry("rebafl", 70.0, 72.0), entry("fedrs", 60.0, 63.0), entry("moon", 50.0)])
    assert verdict.sure == "clear, 2 seeds, of 3 methods, over 1 of them on fewer seeds"


def test_methods_are_compared_on_the_seeds_that_both_have():
    """By plain means the second would be ahead: it was run only with the easy seed."""
    careful, lucky = entry("rebafl", 50.0, 80.0), entry("fedavg", seed1=78.0)
    verdict = judge([careful, lucky])
    assert verdict.best is careful
    assert verdict.leads[0].differences == {1: 2.0}
    assert verdict.leads[0].sure == "one seed"


def test_a_method_without_a_common_seed_is_not_compared():
    alone = entry("fedrs", seed7=99.0)
    verdict = judge([entry("rebafl", 70.0), entry("fedavg", 60.0), alone])
    assert verdict.best.name == "rebafl"
    assert [lead.over.name for lead in verdict.leads] == ["fedavg"]
    assert judge([entry("rebafl", 70.0), alone]) is None
    assert judge([entry("rebafl", 70.0)]) is None
    assert judge([]) is None


def test_two_settings_of_one_method_do_not_compete():
    verdict = judge([entry("rebafl", 70.0), entry("rebafl[mu=5.0]", 72.0), entry("fedavg", 60.0)])
    assert verdict.best.name == "rebafl[mu=5.0]"
    assert [lead.over.name for lead in verdict.leads] == ["fedavg"]
    assert judge([entry("rebafl", 70.0), entry("rebafl[mu=5.0]", 72.0)]) is None


def test_ties_are_named_together():
    verdict = judge([entry("rebafl", 70.0), entry("feddyn", 70.3), entry("fedavg", 60.0)])
    assert [each.name for each in verdict.level] == ["feddyn", "rebafl"]
    assert verdict.sentence(lambda each: each.name).startswith(
        "feddyn is not clearly ahead of 2 other methods: 70.3, +0.3 over rebafl and +10.3 over fedavg (too close, one "
    )
    equal = judge([entry("rebafl", 70.0), entry("feddyn", 70.0)])
    assert len(equal.level) == 2


def test_a_circle_is_broken_by_the_mean():
    """Each is ahead of the next on the one seed that the two share."""
    a, b, c = (
        entry("rebafl", seed0=61.0, seed2=50.0),
        entry("feddyn", seed0=60.0, seed1=61.0),
        entry("fedrs", seed1=60.0, seed2=51.0),
    )
    assert judge([a, b, c]).best is b


def test_the_steadiest_is_named():
    verdict = judge([entry("rebafl", 70.0, swing=2.0), entry("fedavg", 60.0, swing=0.5)])
    assert verdict.sentence(lambda each: each.name).endswith(
        "It changes by 2.0 points from round to round, fedavg by 0.5."
    )
    calm = judge([entry("rebafl", 70.0, swing=0.5), entry("fedavg", 60.0, swing=2.0)])
    assert calm.sentence(lambda each: each.name).endswith("by 0.5 points from round to round, the least of all.")
    itself = judge([entry("rebafl", 70.0, swing=2.0), entry("rebafl[mu=5.0]", 65.0, swing=0.4), entry("fedavg", 60.0)])
    assert itself.sentence(lambda each: each.name).endswith("from round to round, rebafl[mu=5.0] by 0.4.")


def test_without_state_is_asked_only_where_the_best_keeps_some():
    stateful = [entry("feddyn", 70.0), entry("rebafl", 65.0), entry("fedavg", 60.0)]
    assert judge_stateless(stateful).best.name == "rebafl"
    assert judge_stateless(stateful[1:]) is None
    assert judge_stateless(stateful[:2]) is None, "with one method left there is nothing to compare"


def test_the_error_of_one_seed_is_not_known():
    assert Lead(entry("a", 1.0), entry("b", 0.0)).error == 0.0
    assert str(Lead(entry("a", 1.0), entry("b", 0.0))) == "+1.0"
    assert str(Lead(entry("a", 3.0, 1.0), entry("b", 0.0, 0.0))) == f"+2.0 ± {math.sqrt(2) / math.sqrt(2):.1f}"


def test_a_method_with_many_settings_is_one_method():
    """Two poor settings of FedDyn do not outvote its good one."""
    feddyn = [entry("feddyn", 60.0), entry("feddyn[alpha=0.1]", 60.5), entry("feddyn[alpha=0.03]", 75.0)]
    verdict = judge([*feddyn, entry("rebafl", 70.0)])
    assert (verdict.best.name, verdict.leads[0].mean) == ("feddyn[alpha=0.03]", 5.0)
