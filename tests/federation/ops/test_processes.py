"""Only processes that were started here are ended, with all they started."""

import os
from dataclasses import replace

import psutil
import pytest

from rebafl.federation.ops import processes
from rebafl.federation.ops.processes import Started, wait_until


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
