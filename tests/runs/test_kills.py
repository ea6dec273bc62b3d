"""A killed process loses nothing: at any moment, between any two writes, and with client state."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rebafl.runs import record
from support.toy import lines, run_toy, same_bits, weights


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

        for name in ("open", "replace", "unlink"):  # files are opened for writing, renamed and removed through these
            setattr(Path, name, deadly(getattr(Path, name)))
        os.fsync = deadly(os.fsync)
        try:
            run_toy(out, toy, **changes)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("changes", [{"algorithm": "counting"}, {"algorithm": "fedavg", "validation": 0.2}])
def test_killed_before_any_single_write_of_a_run(tmp_path, toy, changes):
    """Every file operation of the whole run is the last one once; each time the resumed run must be the same."""
    changes = {**changes, "rounds": 3}
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
