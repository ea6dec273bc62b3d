"""Ctrl-C at any moment: one word, exit code 130, no traceback."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

WORDS = ["dataset=fashion-mini", "partition.clients=4", "partition.samples=40", "training.epochs=1", "rounds=5000"]
SCRIPT = "import sys\nfrom rebafl.cli import main\nsys.exit(main())\n"  # what pip writes as `rebafl`


class Started:
    """A process that heeds Ctrl-C, and whose imports are told on its standard error as they end."""

    def __init__(self, *words):
        # a shell that starts tests in its background has them ignore Ctrl-C, and children inherit that
        heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-X", "importtime", *map(str, words)],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heed, start_new_session=True,
        )  # fmt: skip
        self.imported, self.said = set(), []
        self.listening = threading.Thread(target=self.listen)  # or a full pipe would hold the process up
        self.listening.start()

    def listen(self):
        for line in self.process.stderr:
            if line.startswith("import time:"):
                self.imported.add(line.split()[-1])
            else:
                self.said.append(line)

    def wait(self, done):
        while not done():
            assert self.process.poll() is None, self.said
            time.sleep(0.001)

    def interrupt(self):
        """Ctrl-C as a terminal sends it: to everything that was started. The exit code, and what was said."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(timeout=60)
        self.listening.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, "".join(self.said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "delay"),
    [*(("module", delay) for delay in (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 3.0)), ("script", 0.0), ("script", 1.0)],
)
def test_at_any_moment(tmp_path, kind, delay):
    (tmp_path / "rebafl").write_text(SCRIPT)
    command = ["-m", "rebafl"] if kind == "module" else [tmp_path / "rebafl"]
    started = Started(*command, "run", *WORDS, "workers=2", f"out={tmp_path / 'run'}")
    started.wait(lambda: "rebafl.base.interrupts" in started.imported)
    time.sleep(delay)
    code, err = started.interrupt()
    assert code == 130, err
    assert "Stopped." in err
    assert "Traceback" not in err
    assert "Error" not in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch._C", "rebafl", "rebafl.cli.main"])
def test_between_the_imports(tmp_path, name):
    started = Started("-m", "rebafl", "run", *WORDS, f"out={tmp_path / 'run'}")
    started.wait(lambda: name in started.imported)
    code, err = started.interrupt()
    assert code == 130, err
    assert "Stopped." in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_while_workers_are_forked(tmp_path):
    started = Started("-m", "rebafl", "run", *WORDS, "workers=8", f"out={tmp_path / 'run'}")
    started.wait((tmp_path / "run" / "checkpoint" / "manifest.json").exists)
    code, err = started.interrupt()
    assert code == 130, err
    assert re.search(r"Stopped\. Rounds finished and saved: \d of 5000\.", err)
    assert "Traceback" not in err


WAITING = """
def wait(known):
    print("waiting", flush=True)
    time.sleep(60)

sys.modules["rebafl.cli.main"].whereabouts = wait
main()
"""


@pytest.mark.slow
def test_a_command_that_says_nothing_itself():
    started = Started("-c", "import time\n" + SCRIPT.replace("sys.exit(main())", WAITING), "datasets")
    assert started.process.stdout.readline() == "waiting\n"
    assert started.interrupt() == (130, "Stopped.\n")


@pytest.mark.slow
def test_an_interrupted_string_does_not_change_the_exit_code(tmp_path):
    """Python would end `python -m` by the signal, which a program that started it does not see as 130."""
    (tmp_path / "own.py").write_text(SCRIPT.replace("main()", """main(lambda: exec("raise KeyboardInterrupt"))"""))
    done = subprocess.run([sys.executable, "-m", "own"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


def test_a_program_that_imports_the_library_keeps_its_own_ways():
    code = "import signal, rebafl; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler; print('kept')"
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    done = subprocess.run([sys.executable, "-c", code, "-m", "rebafl"], capture_output=True, text=True, preexec_fn=heed)
    assert (done.returncode, done.stdout) == (0, "kept\n")
