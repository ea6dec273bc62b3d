"""Each part of what is random can have a seed of its own; without one all follow from `seed`, to the bit."""

from rebafl import make_settings
from rebafl.report.summary import group_runs, read_run, repeated_seeds
from rebafl.runs.experiment import prepare
from support.toy import lines, run_toy, same_bits, weights


def facts(toy, **chosen):
    """Who holds what, who takes part in ten rounds, the first model, and the order of client 0's samples."""
    chosen = {"participation": {"kind": "bernoulli", "p": 0.5}, "model": "mlp", **chosen}
    partition = {"kind": "pathological", "clients": 6, "samples": 20}
    made = prepare(make_settings({"algorithm": "fedavg", "partition": partition, **chosen}), toy)
    return {
        "split": [made.work.split.indices(client).tolist() for client in range(6)],
        "dropout": [list(made.roster(number).trains) for number in range(1, 11)],
        "init": [tensor.tolist() for tensor in made.first_server().weights.values()],
        "order": made.work.client(0, 1, None).shuffle.random(5).tolist(),
    }


def test_each_seed_moves_its_own_part_and_no_other(toy):
    before = facts(toy, seed=3)
    for part in before:
        changed = facts(toy, seed=3, seeds={part: 4})
        assert [name for name in before if changed[name] != before[name]] == [part]
        assert changed[part] == facts(toy, seed=4)[part], "the same stream as that of `seed`"


def test_all_four_are_all_there_is(tmp_path, toy):
    plain = run_toy(tmp_path / "plain", toy, rounds=2, seed=4)
    all_four = dict.fromkeys(("split", "dropout", "init", "order"), 4)
    parts = run_toy(tmp_path / "parts", toy, rounds=2, seed=9, seeds=all_four)
    assert lines(parts.path) == lines(plain.path)
    assert same_bits(weights(parts), weights(plain))


def test_settings_without_them_are_what_they_were():
    assert make_settings({"seeds": {"split": -1}}).digest == make_settings({}).digest
    assert "seeds" not in make_settings({}).identity()
    assert make_settings({"seeds": {"split": 0}}).digest != make_settings({}).digest


def test_runs_with_other_seeds_are_seeds_of_one_setting(tmp_path, toy):
    paths = [run_toy(tmp_path / str(n), toy, rounds=1, seeds={"dropout": n}).path for n in range(2)]
    (group,) = group_runs([read_run(path) for path in paths])
    assert len(group.runs) == 2
    assert repeated_seeds([group]) == ""
