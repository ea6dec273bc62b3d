"""What a run directory holds, and who may write it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebafl.base.errors import UserError
from rebafl.base.files import is_locked
from rebafl.runs import record
from support.toy import run_toy


def test_two_processes_cannot_write_one_run(tmp_path):
    first = record.Record(tmp_path / "r")
    with first.locked():
        code = (
            "import sys; from pathlib import Path; from rebafl import UserError\n"
            "from rebafl.runs.record import Record\n"
            f"try:\n  with Record(Path({str(tmp_path / 'r')!r})).locked(): pass\n"
            "except UserError as e: sys.exit(str(e))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process" in done.stderr


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


def test_two_threads_cannot_write_one_run(tmp_path, toy):
    """The system's lock belongs to a process; a second thread must be kept out all the same, and not open the door."""
    first = record.Record(tmp_path / "r")
    with first.locked():
        with ThreadPoolExecutor(1) as other, pytest.raises(UserError, match="another process or thread"):
            other.submit(run_toy, tmp_path / "r", toy).result()
        assert is_locked(tmp_path / "r")
        code = f"from pathlib import *; from rebafl.base.files import *; print(is_locked(Path({str(first.path)!r})))"
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert seen.strip() == "True", "another process still sees it locked"
    assert not is_locked(tmp_path / "r")
    run_toy(tmp_path / "r", toy)
