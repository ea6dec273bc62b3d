"""A run that is resumed is one run; one that does not fit, or is damaged, is refused and left as it is."""

import json
import os
import re
from dataclasses import replace

import pytest
import torch

from rebafl.base.errors import UserError
from rebafl.base.files import sha256
from rebafl.base.tensors import pack
from rebafl.runs import record
from rebafl.runs.environment import machine
from support.toy import lines, run_toy, same_bits, weights


@pytest.mark.usefixtures("counting")
def test_stopping_and_going_on_is_one_run(tmp_path, toy):
    run_toy(tmp_path / "r", toy, algorithm="counting", rounds=2)
    longer = run_toy(tmp_path / "r", toy, algorithm="counting", rounds=5)
    whole = run_toy(tmp_path / "whole", toy, algorithm="counting", rounds=5)
    assert lines(longer.path) == lines(whole.path)
    assert same_bits(weights(longer), weights(whole))
    assert longer.config()["rounds"] == 5


def test_going_on_with_other_versions_is_noted(tmp_path, toy, monkeypatch):
    """What a number may depend on is known for each of its rounds; nothing is noted while nothing changes."""
    out = tmp_path / "run"
    run_toy(out, toy, rounds=1)
    begun = record.Record(out).environment()
    run_toy(out, toy, rounds=2)
    assert record.Record(out).environment() == begun
    facts = machine()
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: facts | {"torch": "9.9"})
    run_toy(out, toy, rounds=3)
    run_toy(out, toy, rounds=4)
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: facts)
    run_toy(out, toy, rounds=5)
    changes = [{"after_round": 2, "torch": "9.9"}, {"after_round": 4, "torch": facts["torch"]}]
    assert record.Record(out).environment() == begun | {"went_on_with": changes}


def test_a_finished_run_is_left_alone(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("*") if path.is_file() and path.name != ".lock"
    }
    run_toy(tmp_path / "r", toy)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_other_settings_are_refused_and_nothing_is_touched(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy)
    before = (run.path / "config.toml").read_text()
    with pytest.raises(UserError, match=r"seed is 0 there, 1 here"):
        run_toy(tmp_path / "r", toy, seed=1)
    assert (run.path / "config.toml").read_text() == before


def test_other_data_are_refused(tmp_path, toy):
    run_toy(tmp_path / "r", toy, rounds=1)
    with pytest.raises(UserError, match="other data"):
        run_toy(tmp_path / "r", replace(toy, x_test=toy.x_test + 1), rounds=2)


def test_a_foreign_directory_is_not_taken_over(tmp_path, toy):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"holds thesis\.tex"):
        run_toy(tmp_path / "r", toy)
    assert (tmp_path / "r" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="it is a file"):
        run_toy(tmp_path / "file", toy)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("checkpoint/manifest.json", "{", "manifest.json is damaged (Expecting property name"),
        ("checkpoint/manifest.json", '{"round": 3}', "manifest.json is damaged (its digest is gone)"),
        ("checkpoint/server-3.safetensors", "x", "server-3.safetensors is damaged (its digest is another)"),
        ("checkpoint/server-3.safetensors", None, "server-3.safetensors is damaged ([Errno 2]"),
        ("rounds.jsonl", '{"round": 1}\n', "rounds.jsonl is damaged (it is not what the checkpoint knows of it)"),
        ("rounds.jsonl", None, "rounds.jsonl is damaged (it is not what the checkpoint knows of it)"),
        ("config.toml", "= =", "config.toml cannot be read as TOML"),
        ("environment.json", "[", "environment.json is damaged (Expecting value"),
    ],
)
def test_damage_by_hand_is_one_sentence_and_nothing_is_destroyed(tmp_path, toy, name, content, reason):
    run = run_toy(tmp_path / "r", toy)
    path = run.path / name
    path.unlink() if content is None else path.write_text(content)
    files = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=re.escape(reason)) as error:
        run_toy(tmp_path / "r", toy, rounds=5)
    assert "\n" not in str(error.value).strip()
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == files


def test_a_full_disk_loses_no_finished_round(tmp_path, toy, monkeypatch):
    run_toy(tmp_path / "r", toy, rounds=1)
    before = lines(tmp_path / "r")

    def full(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left"):
            run_toy(tmp_path / "r", toy, rounds=3)
    resumed = run_toy(tmp_path / "r", toy, rounds=3)
    whole = run_toy(tmp_path / "whole", toy, rounds=3)
    assert lines(tmp_path / "r")[:1] == before
    assert lines(resumed.path) == lines(whole.path)
    assert same_bits(weights(resumed), weights(whole))


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("config.toml", r"There is no settings file .*config\.toml"),
        ("checkpoint/manifest.json", r"it holds rounds\.jsonl, but no run"),
        ("environment.json", r"environment\.json is damaged"),
        ("rounds.jsonl", r"rounds\.jsonl is damaged"),
    ],
)
def test_a_run_that_lost_a_file_is_neither_taken_for_a_new_one_nor_overwritten(tmp_path, toy, gone, reason):
    run = run_toy(tmp_path / "r", toy)
    (run.path / gone).unlink()
    files = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=reason):
        run_toy(tmp_path / "r", toy, rounds=5)
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == files


def test_settings_edited_by_hand_are_noticed(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy)
    text = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(text.replace("seed = 0", "seed = 1"))
    with pytest.raises(UserError, match="was changed; restore it"):
        run_toy(tmp_path / "r", toy, rounds=5, seed=1)


def test_a_changed_partition_file_is_noticed(tmp_path, toy):
    path = tmp_path / "p.json"
    path.write_text(json.dumps([[k] for k in range(6)]))
    partition = {"kind": "file", "clients": 6, "path": str(path)}
    run_toy(tmp_path / "r", toy, rounds=1, partition=partition)
    path.write_text(json.dumps([[k + 50] for k in range(6)]))
    with pytest.raises(UserError, match="was changed; restore it"):
        run_toy(tmp_path / "r", toy, rounds=2, partition=partition)


@pytest.mark.parametrize("damage", ["shape", "nan", "missing", "state"])
def test_a_checkpoint_of_another_model_is_refused(tmp_path, toy, damage):
    run = run_toy(tmp_path / "r", toy)
    saved = run.server()
    if damage == "shape":
        saved["weights"]["head.bias"] = torch.zeros(1)
    elif damage == "nan":
        saved["weights"]["head.bias"].fill_(float("nan"))
    else:
        saved["weights" if damage == "missing" else "state"].popitem()
    (run.checkpoint / "server-3.safetensors").write_bytes(pack(saved))
    with pytest.raises(UserError, match=r"server-3\.safetensors is damaged"):
        run_toy(tmp_path / "r", toy, rounds=5)
    run._write_manifest(replace(run._manifest(), server=sha256(pack(saved))))  # as if it had been committed so
    with pytest.raises(UserError, match="does not fit its settings"):
        run_toy(tmp_path / "r", toy, rounds=5)
