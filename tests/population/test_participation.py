"""Who is there is a pure function of (seed, round), has the right odds, and can be read in two ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebafl.base.errors import UserError
from rebafl.population.participation import KINDS, Always, Bernoulli, Fraction, Markov, Persistent, Trace, roster

SEEDS, ROUNDS = st.integers(0, 2**32), st.integers(1, 300)


def rounds(process, clients=50, count=400, seed=0):
    return np.stack([process.present(clients, seed, round, "participation") for round in range(1, count + 1)])


@given(SEEDS, ROUNDS, st.sampled_from([k for k in KINDS if k != "trace"]))
def test_asking_twice_or_out_of_order_changes_nothing(seed, round, kind):
    process = KINDS[kind]()
    first = process.present(7, seed, round, "participation").copy()
    process.present(7, seed, round + 5, "participation")
    process.present(7, seed, 1, "participation")
    assert np.array_equal(process.present(7, seed, round, "participation"), first)


def test_bernoulli_has_its_odds_by_group():
    share = rounds(Bernoulli(p=(0.9, 0.2)), clients=10).mean(0)
    assert abs(share[0::2].mean() - 0.9) < 0.04
    assert abs(share[1::2].mean() - 0.2) < 0.04


@given(SEEDS, ROUNDS)
def test_bernoulli_is_never_empty(seed, round):
    assert Bernoulli(p=0.01).present(3, seed, round, "participation").any()


def test_bernoulli_that_cannot_be_non_empty_ends():
    with pytest.raises(UserError, match="raise it"):
        Bernoulli(p=1e-12).present(2, 0, 1, "participation")


@given(SEEDS, ROUNDS, st.floats(0.05, 1.0))
def test_a_period_of_one_is_bernoulli(seed, round, p):
    args = (20, seed, round, "participation")
    assert np.array_equal(Persistent(p=p, period=1).present(*args), Bernoulli(p=p).present(*args))


@given(SEEDS, st.integers(2, 20))
def test_persistent_holds_for_the_period(seed, period):
    drawn = rounds(Persistent(period=period), clients=20, count=3 * period, seed=seed)
    blocks = drawn.reshape(3, period, 20)
    assert (blocks == blocks[:, :1]).all()
    assert (blocks[0, 0] != blocks[1, 0]).any() or (blocks[1, 0] != blocks[2, 0]).any()


@given(SEEDS, ROUNDS, st.integers(1, 200), st.floats(0.01, 1.0))
def test_fraction_is_exact(seed, round, clients, share):
    there = Fraction(share=share).present(clients, seed, round, "participation")
    assert there.sum() == max(1, int(share * clients + 0.5))


def test_fraction_asks_everybody_alike():
    assert abs(rounds(Fraction(share=0.1), count=1000).sum(0) - 100).max() < 5 * np.sqrt(90)


def test_markov_has_its_rates_and_its_long_run_share():
    there = rounds(Markov(leave=0.1, join=0.3), clients=200)
    before, after = there[:-1], there[1:]
    assert abs((before & ~after).sum() / before.sum() - 0.1) < 0.01
    assert abs((~before & after).sum() / (~before).sum() - 0.3) < 0.02
    assert abs(there[0].mean() - 0.75) < 0.12
    assert abs(there.mean() - 0.75) < 0.02


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client,round\n0,1\n2,1\n1,3\n", [{0, 2}, set(), {1}]),
        ("client, first, last\n0,1,2\n1,2,3\n", [{0}, {0, 1}, {1}]),
        ("client,from,to\n0,0,120\n1,30,185\n2,60,119\n", [{0}, {0, 1}, {1}]),
    ],
)
def test_trace(tmp_path, text, expected):
    """The last one: round 2 lasts from 60 to 120; client 2 leaves a moment too early."""
    (tmp_path / "t.csv").write_text(text)
    process = Trace(path=str(tmp_path / "t.csv"))
    found = [set(np.flatnonzero(process.present(3, 0, round, "participation"))) for round in (1, 2, 3)]
    assert found == expected


@pytest.mark.parametrize(
    "text", ["", "client,when\n0,1\n", "client,round\n0\n", "client,round\nx,1\n", "client,round\n0.5,1\n",
             "client,round\n-1,1\n", "client,round\n9,1\n", "client,round\n0,nan\n", "client,round\n0,0\n",
             "client,first,last\n0,0,3\n"]
)  # fmt: skip
def test_broken_traces_are_refused(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=r"t\.csv"):
        Trace(path=str(tmp_path / "t.csv")).present(3, 0, 1, "participation")


@given(SEEDS, ROUNDS)
def test_both_readings_deliver_the_same_uploads(seed, round):
    away = roster(Bernoulli(), "away", Always(), 9, seed, round)
    lost = roster(Bernoulli(), "lost", Always(), 9, seed, round)
    assert away.trains == away.arrives == lost.arrives
    assert lost.trains == tuple(range(9))


@given(SEEDS, ROUNDS)
def test_both_at_once_are_independent_of_each_other(seed, round):
    both = roster(Bernoulli(), "away", Bernoulli(), 9, seed, round)
    assert both.trains == roster(Bernoulli(), "away", Always(), 9, seed, round).trains
    assert both.arrives == tuple(
        sorted(set(both.trains) & set(np.flatnonzero(Bernoulli().present(9, seed, round, "delivery"))))
    )


def test_delivery_and_participation_use_different_streams():
    a, b = (Bernoulli().present(200, 0, 1, purpose) for purpose in ("participation", "delivery"))
    assert 60 < (a == b).sum() < 140
