"""Damage is noticed: one flipped bit anywhere in a run directory is refused, or changes nothing."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.runs import aggregation, opening, rounds
from rebafl.runs.checkpoint import earlier_points
from rebafl.runs.environment import machine
from rebafl.runs.record import Record
from support.toy import lines, run_toy, same_bits, weights

FLIPS, FEW = 15, 3  # for each file; for one of many alike


def flip(path, random):
    data = bytearray(path.read_bytes())
    data[random.integers(len(data))] ^= 1 << random.integers(8)
    path.write_bytes(data)


def outcome(out, toy, whole, **changes):
    """What becomes of a run that is resumed after damage."""
    try:
        resumed = run_toy(out, toy, **changes)
    except UserError as error:
        assert "\n" not in str(error)
        assert str(out) in str(error), "the message says where"
        return "refused"
    same = lines(resumed.path) == lines(whole.path) and same_bits(weights(resumed), weights(whole))
    return "same" if same else "silently different"


@pytest.mark.parametrize("algorithm", ["scaffold", "rebafl"])
def test_a_flipped_bit_never_becomes_another_result(tmp_path, toy, algorithm):
    changes = {"algorithm": algorithm, "participation": {"kind": "bernoulli", "p": 0.7}}
    whole = run_toy(tmp_path / "whole", toy, rounds=6, **changes)
    good = run_toy(tmp_path / "good", toy, rounds=4, **changes).path
    names = sorted(str(p.relative_to(good)) for p in good.rglob("*") if p.is_file() and p.stat().st_size)
    random = np.random.default_rng(0)
    seen: Counter[tuple[str, str]] = Counter()
    for name in names:
        alike = "client-" in name or any(f"-{round}." in name for round in (1, 2, 3))
        for _ in range(FEW if alike else FLIPS):
            out = tmp_path / "r"
            shutil.copytree(good, out)
            flip(out / name, random)
            what = outcome(out, toy, whole, rounds=6, **changes)
            assert what != "silently different", name
            seen[name.split("-")[0], what] += 1
            shutil.rmtree(out)
    assert seen["checkpoint/server", "refused"] > 0
    assert seen["rounds.jsonl", "refused"] == FLIPS
    assert seen["environment.json", "refused"] > FLIPS // 2, "white space does not count"


def test_a_digest_that_is_gone_is_noticed(tmp_path, toy):
    out = run_toy(tmp_path / "r", toy).path
    facts = json.loads((out / "environment.json").read_text())
    facts.pop("sha256")
    (out / "environment.json").write_text(json.dumps(facts | {"torch": "other"}))
    with pytest.raises(UserError, match=r"environment\.json is damaged \(its digest is gone\)"):
        run_toy(out, toy, rounds=5)


def test_a_run_of_an_earlier_version_goes_on_and_gets_digests(tmp_path, toy):
    """Without digests, as runs were written before there were any."""
    changes = {"algorithm": "scaffold"}
    whole = run_toy(tmp_path / "whole", toy, rounds=5, **changes)
    old = run_toy(tmp_path / "r", toy, rounds=3, **changes)
    manifest = json.loads((old.checkpoint / "manifest.json").read_text())
    for path in old.checkpoint.glob("client-*"):
        path.rename(path.with_name("-".join(path.name.split("-")[:3]) + ".safetensors"))
    (old.checkpoint / "manifest.json").write_text(json.dumps({k: manifest[k] for k in ("round", "bytes", "clients")}))
    text = (old.path / "config.toml").read_text()
    (old.path / "config.toml").write_text(text[: text.index("# sha256")])
    facts = json.loads((old.path / "environment.json").read_text())
    facts.pop("sha256")
    (old.path / "environment.json").write_text(json.dumps(facts))
    resumed = run_toy(tmp_path / "r", toy, rounds=5, **changes)
    assert lines(resumed.path) == lines(whole.path)
    assert same_bits(weights(resumed), weights(whole))
    assert "sha256" in json.loads((old.path / "environment.json").read_text())
    assert "# sha256" in (old.path / "config.toml").read_text()


def test_points_to_go_back_to_are_few_and_none_is_wanted_again():
    kept = {0}
    for round in range(1, 500):
        points = earlier_points(round)
        assert points <= kept
        assert len(points) <= 2 + round.bit_length()
        assert round == 1 or round - 1 in points
        kept = points | {round}
    assert earlier_points(100) == {99, 98, 96, 92, 88, 80, 64}


def test_rolled_back_and_run_again_is_the_same_run(tmp_path, toy):
    whole = run_toy(tmp_path / "whole", toy, rounds=9)
    run = run_toy(tmp_path / "r", toy, rounds=9)
    assert run.points() == [4, 6, 7, 8]
    back = Record(run.path)
    back.roll_back(6)
    assert [line.round for line in Record(run.path).rounds()] == list(range(1, 7))
    again = run_toy(tmp_path / "r", toy, rounds=9)
    assert lines(again.path) == lines(whole.path)
    assert same_bits(weights(again), weights(whole))
    with pytest.raises(UserError, match="cannot go back to round 5; rounds that were kept: 4, 6, 7, 8"):
        Record(run.path).roll_back(5)


def test_a_damaged_point_is_not_gone_back_to(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, rounds=6)
    flip(run.checkpoint / "server-4.safetensors", np.random.default_rng(1))
    with pytest.raises(UserError, match=r"server-4\.safetensors is damaged"):
        Record(run.path).roll_back(4)
    assert len(Record(run.path).rounds()) == 6, "nothing was changed"


def test_client_states_are_not_kept_twice(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, rounds=5, algorithm="scaffold", participation="always")
    assert run.points() == []
    assert len(list(run.checkpoint.glob("client-*"))) == 6
    with pytest.raises(UserError, match="with client states"):
        run.roll_back(3)


def test_the_command_goes_back_and_says_so(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, rounds=5)
    done = CliRunner().invoke(cli.app, ["rollback", str(run.path)])
    assert "is at round 5; it can go back to round: 2, 3, 4" in done.output.replace("\n", "")
    done = CliRunner().invoke(cli.app, ["rollback", str(run.path), "--to", "3"])
    assert done.exit_code == 0
    again = Record(run.path)
    assert len(again.rounds()) == 3
    assert again.environment()["went_on_with"] == [{"after_round": 3, "rolled_back_from": 5}]
    assert lines(run_toy(run.path, toy, rounds=5).path) == lines(run_toy(tmp_path / "whole", toy, rounds=5).path)


def test_going_back_needs_a_run_of_one_s_own(tmp_path, toy):
    with pytest.raises(UserError, match="holds no run"):
        CliRunner().invoke(cli.app, ["rollback", str(tmp_path)], catch_exceptions=False)
    run = run_toy(tmp_path / "r", toy)
    with run.locked(), pytest.raises(UserError, match="is being written"):
        CliRunner().invoke(cli.app, ["rollback", str(run.path)], catch_exceptions=False)


def test_a_kill_after_a_discarded_round_leaves_no_states_that_are_taken_for_its_own(tmp_path, toy, monkeypatch):
    """The clients of a discarded round handed in states: they must be gone before the round is real."""
    changes = {"algorithm": "scaffold", "participation": {"kind": "bernoulli", "p": 0.5}}
    next_server = aggregation.next_server

    def discard_second(experiment, number, server, *uploads):
        return (server, [], "on purpose") if number == 2 else next_server(experiment, number, server, *uploads)

    monkeypatch.setattr(rounds, "next_server", discard_second)
    whole = run_toy(tmp_path / "whole", toy, rounds=4, **changes)
    with monkeypatch.context() as patch:

        def killed(record):
            if record.round == 2:
                raise KeyboardInterrupt("killed")

        patch.setattr(Record, "_remove_earlier", killed)
        with pytest.raises(KeyboardInterrupt, match="killed"):
            run_toy(tmp_path / "r", toy, rounds=4, **changes)
    resumed = run_toy(tmp_path / "r", toy, rounds=4, **changes)
    assert lines(resumed.path) == lines(whole.path)
    assert same_bits(weights(resumed), weights(whole))


def test_the_checkpoint_of_another_run_is_not_taken(tmp_path, toy):
    mine, other = (run_toy(tmp_path / str(seed), toy, seed=seed) for seed in (0, 1))
    shutil.rmtree(mine.checkpoint)
    shutil.copytree(other.checkpoint, mine.checkpoint)
    shutil.copy(other.path / "rounds.jsonl", mine.path / "rounds.jsonl")
    with pytest.raises(UserError, match="that of a run with other settings"):
        run_toy(mine.path, toy, seed=0, rounds=5)


def test_facts_of_rounds_that_were_rolled_back_are_forgotten(tmp_path, toy, monkeypatch):
    facts = machine()
    run_toy(tmp_path / "r", toy, rounds=3)
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: facts | {"torch": "9.9"})
    run = run_toy(tmp_path / "r", toy, rounds=6)
    opening.roll_back(Record(run.path), 2)
    assert run.environment()["went_on_with"] == [{"after_round": 2, "rolled_back_from": 6}]
