"""What a shell completes, as Bash does it with the printed script."""

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from rebafl import cli

TRY = 'COMP_LINE="$1"; COMP_POINT=${#1}; _rebafl 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("shell") / "rebafl.bash"
    file.write_text(CliRunner().invoke(cli.app, ["completion", "bash"]).stdout)
    return file


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rebafl swe", {"sweep"}),
        ("rebafl federation kill-", {"kill-node", "kill-server"}),
        ("rebafl run --fre", {"--fresh"}),
        ("rebafl run algorithm=reb", {"rebafl"}),
        ("rebafl run algorithm=rebafl algorithm.m", {"algorithm.mu=", "algorithm.memory=", "algorithm.momentum="}),
        ("rebafl sweep rou", {"rounds="}),
        ("rebafl compare rou", {""}),
    ],
)
def test_what_bash_offers(script, typed, offered):
    done = subprocess.run(
        ["bash", "-c", f"source {script}; {TRY}", "bash", typed], capture_output=True, text=True, cwd=script.parent
    )
    found = set(done.stdout.rstrip("\n").split("\n"))
    assert found >= offered if "algorithm.m" in typed else found == offered


@pytest.mark.parametrize(("shell", "line"), [("zsh", "bashcompinit"), ("fish", "complete -c rebafl")])
def test_the_other_shells_have_the_same_words(shell, line):
    text = CliRunner().invoke(cli.app, ["completion", shell]).stdout
    assert line in text
    assert "kill-node" in text
    assert "partition.alpha=" in text


def test_a_suggestion_is_made_once():
    said = CliRunner().invoke(cli.app, ["rn"]).stderr
    assert said.count("Did you mean 'run'") == 1
