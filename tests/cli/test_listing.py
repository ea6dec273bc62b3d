"""A table of runs says what sets each apart, how far it is and how good; tags find them again."""

import json

import pytest
from typer.testing import CliRunner

from rebafl import UserError, cli
from rebafl.runs.record import Record
from rebafl.runs.tags import change_tags, read_tags
from support.toy import round_line
from support.views import written_run


def asked(*words):
    done = CliRunner().invoke(cli.app, list(map(str, words)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture
def folder(tmp_path):
    def lines(*values, **facts):
        return [
            round_line(round=n, accuracy=v, recall=[v], seconds=30.0, active=[0, 1], **facts)
            for n, v in enumerate(values, 1)
        ]

    written_run(tmp_path / "a", lines(10.0, 60.0, 50.0), 4, rounds=3, algorithm="fedavg")
    written_run(tmp_path / "deep" / "b", lines(70.0), 4, rounds=5, algorithm={"kind": "fedprox", "mu": 0.1}, seed=2)
    written_run(tmp_path / "c", lines(20.0, refused={1: "x"}), 4, rounds=1, algorithm={"kind": "fedprox", "mu": 0.5})
    return tmp_path


def rows(folder, *words):
    return {row["name"]: row for row in json.loads(asked("runs", folder, *words, "--json").stdout)}


def test_what_is_said_of_each_run(folder):
    found = rows(folder)
    assert list(found) == ["a", "c", "deep/b"]
    first, b, c = found["a"], found["deep/b"], found["c"]
    assert (first["state"], first["done"], first["rounds"], first["time"]) == ("finished", 3, 3, 90.0)
    assert (first["best"], first["last"], first["second_half"]) == (60.0, 50.0, 55.0)
    assert (b["state"], b["done"], b["rounds"]) == ("interrupted", 1, 5)
    assert (first["troubles"], c["troubles"]) == ({}, {"refused": "1 of 2"})
    assert b["settings"] == {"algorithm.kind": "fedprox", "algorithm.mu": 0.1, "seed": 2}


def test_the_table(folder):
    text = asked("runs", folder).stdout
    for words in ("fedprox, mu=0.1, seed=2", "interrupted", "1/5", "30 s", "1 of 2", "refused", "differs in"):
        assert words in " ".join(text.split()), words
    assert "tags" not in text
    assert list(rows(folder, "--sort", "best")) == ["deep/b", "a", "c"]


def test_a_damaged_run_says_so_in_its_row(folder):
    (folder / "c" / "rounds.jsonl").write_bytes(b"nothing")
    assert rows(folder)["c"]["state"] == "damaged"
    assert "restore it" in " ".join(asked("runs", folder).stdout.split())


def test_a_run_that_failed_in_its_first_round_is_listed(folder):
    rounds = next(folder.rglob("rounds.jsonl"))
    rounds.unlink()
    assert rounds.parent.name in {name.split("/")[-1] for name in rows(folder)}


def test_tags(folder, monkeypatch):
    asked("tag", folder / "a", folder / "c", "--add", "baseline", "-a", "good")
    asked("tag", folder / "c", "--remove", "good")
    assert (read_tags(folder / "a"), read_tags(folder / "c")) == (["baseline", "good"], ["baseline"])
    assert list(rows(folder, "--tag", "baseline")) == ["a", "c"]
    assert list(rows(folder, "--tag", "baseline", "--tag", "good")) == ["a"]
    assert "baseline, good" in asked("runs", folder).stdout
    assert "no run with the tag none" in asked("runs", folder, "--tag", "none").stdout
    monkeypatch.chdir(folder)
    groups = json.loads(asked("compare", folder, "--tag", "good", "--json").stdout)
    assert [group["label"] for group in groups] == ["fedavg"]
    assert len(Record(folder / "a").rounds()) == 3, "no result depends on them"


def test_what_cannot_be_a_tag_or_a_folder(folder):
    for wrong in ("", "a,b", "\x1b[2J", "x" * 41):
        with pytest.raises(UserError, match="cannot be a tag"):
            change_tags(folder / "a", [wrong])
    with pytest.raises(UserError, match="holds no run"):
        change_tags(folder / "deep", ["x"])
    assert not (folder / "deep" / "tags.json").exists()
    (folder / "a" / "tags.json").write_text("{damaged")
    assert read_tags(folder / "a") == []
    with pytest.raises(UserError, match="There is no folder"):
        asked("runs", folder / "nowhere")
