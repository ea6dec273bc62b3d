"""A killed process loses nothing: at any moment, between any two writes, and with client state."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import lines, run_toy, same_bits, weights
from rebafl import parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.base.errors import UserError
from rebafl.base.files import is_locked, sha256
from rebafl.base.tensors import pack
from rebafl.runs import record
from rebafl.runs.environment import machine


@parameters
class Counting(Algorithm):
    """FedAvg whose clients count their rounds, and let the count matter."""

    name = "counting"

    def correct(self, net, context):
        for parameter in net.parameters():
            parameter.grad.mul_(1 + self.count(context))

    def count(self, context):
        return int(context.client.state["n"]) if context.client.state else 0

    def next_state(self, net, context, upload, steps):
        return {"n": torch.tensor(self.count(context) + 1)}

    def client_state_template(self, server):
        return {"n": torch.tensor(0)}


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setitem(KINDS, "counting", Counting)


def killed_at(step, out, toy, **changes):
    """Run in a forked child that kills itself just before its `step`-th change to the disk; did it get there?"""
    child = os.fork()
    if child == 0:
        left = [step]

        def deadly(original):
            def wrapper(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            return wrapper

        Path.open = deadly(Path.open)  # files are opened for writing, renamed and removed through these
        Path.replace = deadly(Path.replace)
        Path.unlink = deadly(Path.unlink)
        os.fsync = deadly(os.fsync)
        try:
            run_toy(out, toy, **changes)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_killed_before_any_single_write_of_a_run(tmp_path, toy):
    """Every file operation of the whole run is the last one once; each time the resumed run must be the same."""
    changes = {"algorithm": "counting", "rounds": 3}
    whole = run_toy(tmp_path / "whole", toy, **changes)
    step = 0
    while killed_at(step, tmp_path / "r", toy, **changes):
        resumed = run_toy(tmp_path / "r", toy, **changes)
        assert lines(resumed.path) == lines(whole.path), step
        assert same_bits(weights(resumed), weights(whole)), step
        assert sorted(os.listdir(resumed.path / "checkpoint")) == sorted(os.listdir(whole.path / "checkpoint")), step
        shutil.rmtree(tmp_path / "r")
        step += 1
    assert step > 60


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path):
    """A real process with real workers, killed again and again until it gets through."""
    words = ["dataset=fashion-mini", "partition.clients=6", "partition.samples=40", "training.epochs=1", "rounds=8",
             "workers=2", "algorithm=rebafl"]  # fmt: skip
    command = [sys.executable, "-m", "rebafl", "run", *words, "-q"]
    subprocess.run([*command, f"out={tmp_path / 'whole'}"], check=True)
    chance, kills, rounds = random.Random(1), 0, tmp_path / "r" / "rounds.jsonl"
    for _ in range(4):
        before = rounds.stat().st_size if rounds.exists() else 0
        process = subprocess.Popen([*command, f"out={tmp_path / 'r'}"])
        while process.poll() is None and (not rounds.exists() or rounds.stat().st_size <= before):
            time.sleep(0.01)  # until it has finished a round more
        time.sleep(chance.uniform(0, 0.5))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
    subprocess.run([*command, f"out={tmp_path / 'r'}"], check=True)
    assert kills >= 2
    assert lines(tmp_path / "r") == lines(tmp_path / "whole")
    assert same_bits(
        record.Record(tmp_path / "r").server()["weights"], record.Record(tmp_path / "whole").server()["weights"]
    )


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
    monkeypatch.setattr("rebafl.runs.rounds.machine", lambda: facts | {"torch": "9.9"})
    run_toy(out, toy, rounds=3)
    run_toy(out, toy, rounds=4)
    monkeypatch.setattr("rebafl.runs.rounds.machine", lambda: facts)
    run_toy(out, toy, rounds=5)
    changes = [{"after_round": 2, "torch": "9.9"}, {"after_round": 4, "torch": facts["torch"]}]
    assert record.Record(out).environment() == begun | {"went_on_with": changes}


def test_only_changed_code_marks_a_commit(tmp_path, monkeypatch):
    """Results that are run again, or notes beside the code, do not make a number's origin doubtful."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True)

    monkeypatch.setattr("rebafl.runs.environment.SOURCE", tmp_path)
    assert machine()["commit"] == "", "an installed package"
    for name in ("src/code.py", "results/cell.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD").stdout.strip()
    assert machine()["commit"] == head
    (tmp_path / "results" / "cell.json").write_text("2")
    assert machine()["commit"] == head
    (tmp_path / "src" / "code.py").write_text("2")
    assert machine()["commit"] == f"{head}-dirty"


def test_a_finished_run_is_left_alone(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("*") if path.is_file() and path.name != ".lock"
    }
    run_toy(tmp_path / "r", toy)
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("dropout", ["away", "lost"])
def test_only_clients_whose_upload_was_taken_move_on(tmp_path, toy, dropout):
    """Absent or lost: the state file stays the same, byte for byte."""
    seen = {}
    for rounds in (1, 2, 3, 4):
        run = run_toy(tmp_path / "r", toy, algorithm="counting", rounds=rounds, dropout=dropout)
        line = run.rounds()[-1]
        files = {int(path.name.split("-")[1]): path.read_bytes() for path in run.checkpoint.glob("client-*")}
        arrived = set(line["active"]) - set(line["lost"])
        assert {client for client in files if files[client] != seen.get(client)} == arrived
        seen = files
    counts = {client: int(run.client_state(client)["n"]) for client in seen}
    took_part = [set(line["active"]) - set(line["lost"]) for line in run.rounds()]
    assert counts == {client: sum(client in part for part in took_part) for client in counts}


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
    ("name", "content"),
    [
        ("checkpoint/manifest.json", "{"), ("checkpoint/manifest.json", '{"round": 3}'),
        ("checkpoint/server-3.safetensors", "x"), ("checkpoint/server-3.safetensors", None),
        ("rounds.jsonl", '{"round": 1}\n'), ("rounds.jsonl", None), ("config.toml", "= ="), ("environment.json", "["),
    ],
)  # fmt: skip
def test_damage_by_hand_is_one_sentence_and_nothing_is_destroyed(tmp_path, toy, name, content):
    run = run_toy(tmp_path / "r", toy)
    path = run.path / name
    path.unlink() if content is None else path.write_text(content)
    files = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError) as error:
        run_toy(tmp_path / "r", toy, rounds=5)
    assert "\n" not in str(error.value).strip()
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == files


def test_two_processes_cannot_write_one_run(tmp_path):
    first = record.Record(tmp_path / "r")
    with first.locked():
        code = (
            "import sys; from pathlib import Path; from rebafl import UserError; from rebafl.runs.record import Record\n"
            f"try:\n  with Record(Path({str(tmp_path / 'r')!r})).locked(): pass\n"
            "except UserError as e: sys.exit(str(e))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process" in done.stderr


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


def test_a_line_has_what_it_should(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy)
    rows = [json.loads(line) for line in (run.path / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    expected = {"round", "accuracy", "loss", "recall", "active", "lost", "refused", "updated", "diversity", "bytes_up",
                "bytes_down", "seconds"}  # fmt: skip
    assert set(rows[0]) == expected
    assert len(rows[0]["recall"]) == 4
    assert rows[0]["accuracy"] == pytest.approx(sum(rows[0]["recall"]) / 4)
    environment = run.environment()
    assert {"torch", "numpy", "python", "processor", "data_sha256", "warnings"} <= set(environment)


def test_a_class_without_a_holder_is_warned_of_and_recorded(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, partition={"kind": "pathological", "clients": 1, "classes": 2, "samples": 20})
    assert "No client holds" in run.environment()["warnings"][0]


@pytest.mark.parametrize("gone", ["config.toml", "checkpoint/manifest.json", "environment.json", "rounds.jsonl"])
def test_a_run_that_lost_a_file_is_neither_taken_for_a_new_one_nor_overwritten(tmp_path, toy, gone):
    run = run_toy(tmp_path / "r", toy)
    (run.path / gone).unlink()
    files = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError):
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


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    words = ["dataset=fashion-mini", "partition.samples=40", "rounds=500", "workers=2", f"out={tmp_path / 'r'}", "-q"]
    process = subprocess.Popen([sys.executable, "-m", "rebafl", "run", *words])
    while not (tmp_path / "r" / "rounds.jsonl").exists():
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(children) == 2
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_lost_or_strange_client_state_is_noticed(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="counting", participation="always")
    state = next(run.checkpoint.glob("client-2-*"))
    good = state.read_bytes()
    state.unlink()
    with pytest.raises(UserError, match="5 of 6 client states"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    other = pack({"state": {"n": torch.tensor(1)}})
    state.write_bytes(other)
    with pytest.raises(UserError, match=r"client-2-3-.* is damaged \(its digest is another\)"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    state.unlink()
    foreign = state.with_name(f"client-2-3-{sha256(other)[:32]}.safetensors")
    foreign.write_bytes(other)
    with pytest.raises(UserError, match="not those that were committed"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    foreign.unlink()
    state.write_bytes(good)
    assert run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5).round == 5


def test_two_threads_cannot_write_one_run(tmp_path, toy):
    """The system's lock belongs to a process; a second thread must be kept out all the same, and not open the door."""
    first = record.Record(tmp_path / "r")
    with first.locked():
        with ThreadPoolExecutor(1) as other, pytest.raises(UserError, match="another process or thread"):
            other.submit(run_toy, tmp_path / "r", toy).result()
        assert is_locked(tmp_path / "r")
        code = f"from pathlib import Path; from rebafl.base import files; print(files.is_locked(Path({str(first.path)!r})))"
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert seen.strip() == "True", "another process still sees it locked"
    assert not is_locked(tmp_path / "r")
    run_toy(tmp_path / "r", toy)
