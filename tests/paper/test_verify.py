"""A result comes out again to the bit, or it is said from where on, by how much and what is otherwise here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebafl import cli, make_settings, simulate
from rebafl.base.errors import UserError
from rebafl.base.files import sha256
from rebafl.paper.items import find_item, find_scale
from rebafl.paper.results import write
from rebafl.paper.verify import Difference, choose, compare, read, repeat
from rebafl.runs.record import Record
from support.paths import RESULTS
from support.toy import run_toy

SETTINGS = {
    "dataset": "fashion-mini",
    "model": "mlp",
    "rounds": 3,
    "workers": 1,
    "algorithm": "scaffold",
    "partition": {"kind": "pathological", "clients": 4, "classes": 2, "samples": 20},
    "training": {"epochs": 1},
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run directory, and the result file that would be kept of it."""
    folder = tmp_path_factory.mktemp("original")
    record = simulate(SETTINGS, folder / "run", say=lambda text: None)
    write(folder / "result.json", make_settings(SETTINGS), record)
    return folder


@pytest.fixture
def copy(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "copy"))


def verify(*words):
    """The exit code, and what was printed; what would be exit code 2 is raised."""
    done = CliRunner().invoke(cli.app, ["verify", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def change(path, number, **values):
    """Another value in one line of `rounds.jsonl`, of the same length, and the digest that goes with it."""
    file = path / "rounds.jsonl"
    rows = file.read_text().splitlines()
    line = json.dumps(json.loads(rows[number - 1]) | values)
    assert len(line) == len(rows[number - 1])
    file.write_text("\n".join([*rows[: number - 1], line, *rows[number:]]) + "\n")
    record = Record(path)
    record._write_manifest(replace(record._manifest(), rounds=sha256(file.read_bytes())))  # as if it had been so


def test_what_comes_out_again_is_the_same(original, tmp_path):
    code, printed = verify(original / "run", original / "result.json", "--work", tmp_path / "work", "--json")
    run, result = json.loads(printed)
    assert code == 0
    assert run["same"]
    assert result["same"]
    assert (run["rounds"], run["of"], run["weights"], result["weights"]) == (3, 3, 0.0, None)
    assert run["first"] is None
    assert len(Record(tmp_path / "work" / "1-run").rounds()) == 3, "it was really run"
    code, printed = verify(original / "run", "--rounds", 2)
    assert code == 0
    assert "same: every number of 2 of 3 rounds to the bit" in printed


def test_one_last_bit_is_enough(copy):
    """The loss of the second round, by its last digit."""
    loss = json.loads((copy / "run" / "rounds.jsonl").read_text().splitlines()[1])["loss"]
    text = repr(loss)
    other = float(text[:-1] + ("1" if text[-1] != "1" else "2"))
    change(copy / "run", 2, loss=other)
    code, printed = verify(copy / "run", "--json")
    (verdict,) = json.loads(printed)
    assert code == 1
    assert verdict["first"] == {"round": 2, "quantity": "loss", "recorded": other, "found": loss}
    assert verdict["largest"] == {"loss": abs(other - loss)}
    assert verdict["weights"] == 0.0
    assert verify(copy / "run", "--rounds", 1)[0] == 0, "the round before is the same"
    code, printed = verify(copy / "run")
    assert code == 1
    assert f"different: loss in round 2 ({other} was recorded, {loss} came out)" in printed


def test_other_facts_are_named(copy):
    path = copy / "result.json"
    kept = json.loads(path.read_text())
    kept["curves"]["accuracy"][0] += 1.0
    kept["environment"] |= {"bits": "aarch64", "torch": "1.0"}
    kept["environment"]["instructions"]["torch"] = "SVE"
    del kept["sha256"]
    path.write_text(json.dumps(kept))
    code, printed = verify(path, "--json", "--rounds", 1)
    facts = json.loads(printed)[0]["facts"]
    assert code == 1
    assert (facts["bits"]["recorded"], facts["torch"]["recorded"]) == ("aarch64", "1.0")
    assert facts["instructions.torch"]["recorded"] == "SVE"
    _, printed = verify(path, "--rounds", 1)
    assert "aarch64" in printed
    assert "accuracy" in printed


def test_other_weights_alone_are_noticed(original, tmp_path, monkeypatch):
    kept = read(original / "run")
    saved = kept.record.server()
    saved["weights"]["head.bias"][0] += 0.5
    monkeypatch.setattr(kept.record, "server", lambda: saved)
    verdict = repeat(kept, 0, tmp_path / "again", say=lambda text: None)
    assert not verdict.same
    assert verdict.first == Difference(3, "weights", None, None)
    assert verdict.weights == pytest.approx(0.5)


def test_values_are_compared_by_their_text():
    numbers: dict[str, list[Any]] = {
        "loss": [0.1, 0.30000000000000004],
        "recall": [[1.0, None], [2.0, 3.0]],
        "seconds": [1, 2],
    }
    found: dict[str, list[Any]] = {
        "loss": [0.1, 0.3],
        "recall": [[1.0, None], [2.0, 5.0]],
        "seconds": [8, 9],
        "new": [1, 1],
    }
    first, largest = compare(numbers, found, 2)
    assert first == Difference(2, "loss", 0.30000000000000004, 0.3)
    assert largest == {"loss": pytest.approx(5.5e-17, rel=0.1), "recall": 2.0}
    assert compare(numbers, found, 1) == (None, {})
    assert compare({"a": [0.0]}, {"a": [-0.0]}, 1)[0] is not None
    assert compare({"a": [None]}, {"a": [1.0]}, 1) == (Difference(1, "a", None, 1.0), {"a": None})
    assert compare({"a": [{"1": "late"}]}, {}, 1) == (Difference(1, "a", {"1": "late"}, None), {"a": None})


def test_what_cannot_be_run_again_is_said_in_a_sentence(copy, tmp_path, toy):
    with pytest.raises(UserError, match="was run from Python with a model of its own"):
        verify(run_toy(tmp_path / "own", toy).path)
    own_data = simulate(
        {**SETTINGS, "rounds": 1, "partition": {"clients": 2, "classes": 2, "samples": 20}},
        tmp_path / "data", data=toy, say=lambda text: None,
    )  # fmt: skip
    with pytest.raises(UserError, match="was run on 'toy', which is not here"):
        verify(own_data.path)
    for bad in ("[]", "{}", "no json", '{"rounds": 1, "seed": 0, "settings": 1, "environment": {}, "curves": {}}'):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(UserError, match=r"bad.json is neither a run directory nor a result file \("):
            verify(tmp_path / "bad.json")
    with pytest.raises(UserError, match="neither"):
        verify(tmp_path / "nothing")
    record = Record(copy / "run")
    facts = record.environment()
    record.write_environment(facts | {"data_sha256": "0" * 64})
    with pytest.raises(UserError, match="other data than fashion-mini holds here"):
        verify(copy / "run")
    record.write_environment(facts | {"federation": {}})
    with pytest.raises(UserError, match="the run of a federation"):
        verify(copy / "run")


def test_an_earlier_repetition_is_not_taken_for_this_one(original, tmp_path):
    assert verify(original / "run", "--rounds", 1, "--work", tmp_path)[0] == 0
    with pytest.raises(UserError, match="is there already; choose another --work"):
        verify(original / "run", "--rounds", 1, "--work", tmp_path)


def test_the_same_seed_chooses_the_same_cells():
    items, scale = [find_item("table1")], find_scale("quick")
    chosen = choose(items, scale, RESULTS, 4, seed=1)
    assert len(set(chosen)) == 4
    assert chosen == choose(items, scale, RESULTS, 4, seed=1)
    assert chosen != choose(items, scale, RESULTS, 4, seed=2)
    assert len(choose(items, scale, RESULTS, 10_000, seed=0)) < 10_000
    with pytest.raises(UserError, match="no finished cell"):
        choose(items, scale, RESULTS / "nowhere", 4, seed=1)


def test_comparing_different_kinds_of_bits_is_warned_of(copy, tmp_path):
    other = shutil.copytree(copy / "run", tmp_path / "other")
    runner = CliRunner()
    words = ["compare", str(copy / "run"), str(other), "--json"]
    assert "kinds of bits" not in runner.invoke(cli.app, words).stderr
    record = Record(other)
    facts = record.environment()
    record.write_environment(facts | {"bits": "aarch64"})
    said = runner.invoke(cli.app, words).stderr
    assert said.count("Warning: The runs have different kinds of bits") == 1
    assert f"aarch64 ({other})" in said
    del facts["bits"]
    record.write_environment(facts)
    assert "kinds of bits" not in runner.invoke(cli.app, words).stderr, "an older record does not say"


@pytest.mark.parametrize("words", [["verify"], ["paper", "verify"]])
def test_help_has_an_example(words):
    assert "Examples:" in CliRunner().invoke(cli.app, [*words, "--help"]).output


def test_committed_cells_are_run_again_by_one_command(tmp_path):
    name = "quick/fashion-mini-fedavg-seed0-11dfde.json"
    (tmp_path / "quick").mkdir()
    shutil.copy(RESULTS / name, tmp_path / name)
    words = ["paper", "verify", "all", "--rounds", "1", "--results", str(tmp_path), "--json"]
    done = CliRunner().invoke(cli.app, words)
    (verdict,) = json.loads(done.stdout)
    assert (verdict["path"], verdict["rounds"], verdict["of"]) == (str(tmp_path / name), 1, 20)
    assert done.exit_code == (0 if verdict["same"] else 1)
