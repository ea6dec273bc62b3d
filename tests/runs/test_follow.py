"""A run is followed round by round, and nothing is read twice."""

import pytest

from rebafl import UserError
from rebafl.runs.follow import Follower
from rebafl.runs.opening import roll_back
from rebafl.runs.record import Record
from support.toy import run_toy


def test_only_what_is_new_is_read(tmp_path, toy):
    follower = Follower(tmp_path / "r")
    assert follower.look() == 0
    assert follower.lines == []
    run_toy(tmp_path / "r", toy, rounds=2)
    assert follower.look() == 0
    first = follower.lines
    assert [line.round for line in first] == [1, 2]
    assert follower.look() == 2
    run_toy(tmp_path / "r", toy, rounds=5)
    assert follower.look() == 2
    assert follower.lines == Record(tmp_path / "r").rounds()
    assert all(a is b for a, b in zip(first, follower.lines, strict=False))


def test_a_run_that_is_rolled_back_is_read_again(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=5)
    follower = Follower(record.path)
    follower.look()
    roll_back(Record(record.path), 4)
    run_toy(tmp_path / "r", toy, rounds=5)
    assert follower.look() in (0, 5)
    assert follower.lines == Record(record.path).rounds()
    roll_back(Record(record.path), 3)
    assert follower.look() == 0
    assert len(follower.lines) == 3


def test_damage_is_named(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy)
    text = (record.path / "rounds.jsonl").read_text()
    (record.path / "rounds.jsonl").write_text(text.replace("accuracy", "Accuracy"))
    with pytest.raises(UserError, match=r"rounds\.jsonl is not what the checkpoint knows of it"):
        Follower(record.path).look()
