"""Only processes that were started here are ended, with all they started."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import psutil
import pytest

from rebafl.federation.ops import processes
from rebafl.federation.ops.processes import ALIVE, DEAD, LEFT_OVER, Started, states, wait_until


def test_only_a_process_that_is_what_was_started_is_touched():
    own = psutil.Process()
    right = Started.now(own.pid, own.cmdline())
    assert right.alive
    for change in ({"began": right.began - 1}, {"command": ("/bin/sh", "start.sh")}, {"boot": "another"}):
        wrong = replace(right, **change)
        assert not wrong.alive
        processes.kill([wrong])  # would end this very test
        processes.stop([wrong])


@pytest.mark.parametrize("end", [processes.kill, processes.stop])
def test_a_process_goes_with_all_it_started(tmp_path, end):
    script = tmp_path / "family.sh"
    script.write_text("sleep 100 & setsid sleep 100 & echo ready; wait\n")
    log = tmp_path / "log"
    started = processes.start(["/bin/sh", str(script)], tmp_path, os.environ, log)
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(), 10)
    family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
    assert len(family) == 3
    end([started])
    assert not started.alive
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def runs(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("end", [processes.kill, processes.stop])
def test_what_a_dead_process_left_behind_is_found_and_ended(tmp_path, end):
    """In its session, and in a session of its own; whoever started it died alone."""
    script = tmp_path / "family.sh"
    script.write_text("sleep 100 & setsid sleep 100 & env -i sleep 100 & echo ready; wait\n")
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    log = tmp_path / "log"
    started = processes.start(["/bin/sh", str(script)], tmp_path, os.environ, log)
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(), 10)
    shell = psutil.Process(started.pid)
    assert wait_until(lambda: [child.name() for child in shell.children()] == ["sleep"] * 3, 10)
    family = shell.children()
    assert states({"it": started}) == {"it": ALIVE}
    shell.kill()
    shell.wait(10)
    assert not started.alive
    assert all(map(runs, family))
    read = Started.read(json.loads(json.dumps(asdict(started))))
    assert states({"it": read}) == {"it": LEFT_OVER}
    end([read])
    assert states({"it": read}) == {"it": DEAD}
    assert not any(map(runs, family))
    assert bystander.poll() is None
    bystander.communicate(b"\n", 10)


def test_a_record_without_a_mark_is_read_and_touches_nothing_that_it_cannot_prove_its_own():
    own = psutil.Process()
    old = {key: value for key, value in asdict(Started.now(own.pid, own.cmdline())).items() if key != "mark"}
    assert Started.read(old).alive
    stranger = replace(Started.read(old), began=old["began"] - 1)
    assert states({"it": stranger}) == {"it": DEAD}
    processes.kill([stranger])  # would end this very test
