"""What the words of a sweep mean, and several runs at once."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from typer.testing import CliRunner

from rebafl import UserError, cli
from rebafl.runs.at_once import DIED, each_at_once
from rebafl.runs.record import rounds_done
from rebafl.runs.sweep import grid, options
from support.toy import lines

TINY = ["dataset=fashion-mini", "model=mlp", "partition.clients=3", "partition.samples=20", "training.epochs=1"]


def test_words_with_several_values():
    assert options("seed=0..3") == [["seed=0"], ["seed=1"], ["seed=2"], ["seed=3"]]
    assert options("seed=7,0..1") == [["seed=7"], ["seed=0"], ["seed=1"]]
    assert options("participation.p=[1,0.2],[0.1,1]") == [["participation.p=[1,0.2]"], ["participation.p=[0.1,1]"]]
    assert options("algorithm=fedavg,rebafl[mu=0.1,0.5,eps=0.2]") == [
        ["algorithm=fedavg"],
        ["algorithm=rebafl", "algorithm.mu=0.1", "algorithm.eps=0.2"],
        ["algorithm=rebafl", "algorithm.mu=0.5", "algorithm.eps=0.2"],
    ]
    assert options("log=tensorboard,wandb") == [["log=tensorboard,wandb"]]
    assert options("partition=by_me:Halves[parts=2..3]")[1] == ["partition=by_me:Halves", "partition.parts=3"]
    for wrong in ("seed=4..0", "seed=0..999999", "algorithm=rebafl[0.1]"):
        with pytest.raises(UserError, match=r"count upwards|in the brackets stand settings of rebafl"):
            options(wrong)


def test_settings_of_one_algorithm_leave_the_others_alone(tmp_path):
    points = grid({}, ["algorithm=fedavg,rebafl[mu=0.1,0.5]", "seed=0..1"], tmp_path)
    found = [(point.settings.algorithm.name, getattr(point.settings.algorithm, "mu", None)) for point in points]
    assert found == [("fedavg", None)] * 2 + [("rebafl", 0.1)] * 2 + [("rebafl", 0.5)] * 2
    assert [point.settings.seed for point in points] == [0, 1] * 3
    assert points[2].label == "algorithm=rebafl algorithm.mu=0.1 seed=0"
    with pytest.raises(UserError, match=r"algorithm\.mu"):
        grid({}, ["algorithm=fedavg[mu=0.1]"], tmp_path)


def test_a_bare_directory_is_no_sweep(tmp_path):
    done = CliRunner().invoke(cli.app, ["sweep", f"out={tmp_path}"])
    assert isinstance(done.exception, UserError)
    assert "rebafl compare" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def task(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{number} is odd" if number % 2 else ""


def test_one_that_dies_costs_no_other():
    wanted = {0: "", 1: "1 is odd", 2: DIED, 3: "3 is odd", 4: ""}
    assert dict(each_at_once(task, range(5), 3)) == wanted
    assert dict(each_at_once(task, [2, 0, 1], 1)) == {2: DIED, 0: DIED, 1: DIED}, "with no process left"


def test_at_once_gives_the_bits_of_one_after_the_other(tmp_path):
    words = [*TINY, "rounds=2", "seed=0..1"]
    runner = CliRunner()
    done = runner.invoke(cli.app, ["sweep", *words, f"out={tmp_path / 'a'}", "--at-once", "2"])
    assert done.exit_code == 0, done.output
    assert "[2/2]" in done.stderr
    runner.invoke(cli.app, ["sweep", *words, "workers=1", f"out={tmp_path / 'b'}", "-q"])
    for run in (tmp_path / "b").iterdir():
        assert [{**line, "seconds": 0} for line in lines(run)] == [
            {**line, "seconds": 0} for line in lines(tmp_path / "a" / run.name)
        ]
    assert len(list((tmp_path / "b").iterdir())) == 2


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path):
    words = [*TINY, "rounds=100000", "seed=0,1", f"out={tmp_path}", "--at-once", "2"]
    with subprocess.Popen([sys.executable, "-m", "rebafl", "sweep", *words, "-q"]) as process:
        until = time.monotonic() + 120
        while sum(rounds_done(path) > 0 for path in tmp_path.iterdir()) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        children = psutil.Process(process.pid).children()
        process.kill()
        process.wait()
    assert len(children) == 2
    assert psutil.wait_procs(children, timeout=60)[1] == []
