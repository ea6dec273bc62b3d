"""Runs of one setting are one group, and what they must not be taken for is said."""

from rebafl.report.summary import group_runs, read_run, repeated_seeds
from support.toy import run_toy


def test_the_same_seed_twice_is_no_spread_over_seeds(tmp_path, toy):
    first, again, other = (
        read_run(run_toy(tmp_path / name, toy, algorithm="fedavg", rounds=1, seed=seed).path)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert repeated_seeds(group_runs([first, other])) == ""
    assert "Several runs of fedavg have the same seed" in repeated_seeds(group_runs([first, again, other]))
