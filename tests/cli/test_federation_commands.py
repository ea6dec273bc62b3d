"""`rebafl federation` as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rebafl.base.errors import UserError
from rebafl.cli.main import app
from rebafl.federation.ops.layout import Plan, create, read_plan
from rebafl.federation.ops.local import LocalFederation
from rebafl.federation.ops.processes import free_ports
from support.plans import SMALL


def command(*words):
    """One command, in this process."""
    return CliRunner().invoke(app, ["federation", *words], standalone_mode=False, catch_exceptions=False)


def test_everything_listens_on_loopback_unless_told_otherwise(tmp_path):
    command("init", str(tmp_path / "here"), "--nodes", "1")
    command("init", str(tmp_path / "out"), "--nodes", "1", "--host", "fl.example.org")
    assert 'LISTEN:=127.0.0.1"' in (tmp_path / "here/server/environment").read_text().replace("}", '"')
    assert 'LISTEN:=0.0.0.0"' in (tmp_path / "out/server/environment").read_text().replace("}", '"')
    assert "SERVER:=fl.example.org:9092" in (tmp_path / "out/node-0/environment").read_text()
    assert "--host 127.0.0.1" in (tmp_path / "out/node-0/start.sh").read_text()  # a node never listens outside
    assert read_plan(tmp_path / "out").listen == "0.0.0.0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--dir", "nowhere"], "holds no federation"),
        (["down", "--dir", "fed"], "not up"),
        (["kill-node", "0", "--dir", "fed"], "not up"),
        (["up", "--nodes", "3", "--dir", "fed"], "2 nodes, not 3"),
        (["up", "--nodes", "2", "--dir", "fed", "rouns=3"], "rouns"),
        (["up", "--nodes", "2", "--dir", "fed", "deadline=soon"], "deadline"),
        (["up", "--nodes", "2", "--dir", "fed", "partition.clients=1"], "there are 2 nodes"),
        (["up", "--nodes", "2", "--dir", "fed", "out=x"], "--dir"),
        (["up", "--nodes", "2", "--dir", "fed", "protect.secagg=true", "max-norm=5"], "known; use max-norm=0"),
        (["up", "--nodes", "2", "--dir", "fed", "protect.secagg=true", "counts=split"], "use counts=free"),
        (["run", "--dir", "fed", "rounds=3"], "No server answers"),
        (["init", "fed"], "not empty"),
        (["init", "new", "--host", "no spaces"], "neither a name nor"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    ports = free_ports(3)
    create(Path("fed"), Plan(2, (), "127.0.0.1", ports[0], tuple(ports[1:])))
    with pytest.raises(UserError, match=said):
        command(*words)
    assert not LocalFederation(Path("fed")).is_up


def test_without_flower_the_commands_are_there_and_say_how_to_get_it(tmp_path):
    absent = "import sys; sys.modules.update(dict.fromkeys(('flwr', 'cryptography', 'httpx', 'uvicorn')))"
    program = [sys.executable, "-c", f"{absent}; from rebafl.cli import main; main()", "federation"]
    for words in (["init", "fed"], ["up", "--nodes", "2"], ["status"]):
        done = subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "install it with: pip install 'rebafl[flower]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_status_says_what_there_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create(Path("federation"), SMALL)
    result = command("status", "--json")
    state = json.loads(result.stdout)
    assert state["server"] == {"process": "not started here", "answers": False}
    assert state["nodes"]["1"] == {"process": "not started here", "connected": False}
    assert (state["up"], state["rounds"], state["accuracy"]) == (False, 0, None)
