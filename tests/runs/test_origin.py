"""Own code that was edited, or another kind of bits, is not mixed into a run unless the user says so."""

import json
import re
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

import support.toy
from rebafl import cli, simulate
from rebafl.base.errors import UserError
from rebafl.models.networks import MLP
from rebafl.runs.environment import machine
from rebafl.runs.origin import UNKNOWN, changes_to_accept, own_code
from rebafl.runs.record import Record
from rebafl.runs.settings import make_settings
from support.toy import TOY_SETTINGS, TinyNet, lines, run_toy

OWN = """
from rebafl import parameters
from rebafl.algorithms.interface import Algorithm
from rebafl.models.networks import MLP

@parameters
class Base(Algorithm):
    name = "base"

@parameters
class Mine(Base):
    name = "mine"

def net(shape, classes):
    return MLP(shape, classes)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's in the current folder, and a way to edit it between two calls."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_own.py"

    def edit(text):
        file.write_text(text)
        sys.modules.pop("my_own", None)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within the same second must count
    edit(OWN)
    yield edit
    sys.modules.pop("my_own", None)


def facts(path):
    return json.loads((path / "environment.json").read_text())


def test_the_source_of_own_code_is_a_fact_of_the_run(own, tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="my_own:Mine", rounds=1)
    found = {
        "my_own:Mine": sha256(OWN.encode()).hexdigest(),
        "my_own:Base": sha256(OWN.encode()).hexdigest(),
        "support.toy:TinyNet": sha256(Path(support.toy.__file__).read_bytes()).hexdigest(),
    }
    assert run.environment()["own_code"] == found


def test_a_run_without_own_code_has_no_such_fact(tmp_path, toy):
    assert "own_code" not in run_toy(tmp_path / "r", toy, model=MLP, rounds=1).environment()


GIVEN = {
    "algorithm": ({"algorithm": "my_own:Mine"}, TinyNet, "my_own:Base; the source of my_own:Mine"),
    "model": ({"model": "my_own:net"}, None, "my_own:net"),
}


@pytest.mark.parametrize("what", list(GIVEN))
def test_edited_own_code_is_refused_until_the_user_says_so_and_then_noted(own, tmp_path, toy, what):
    words, model, named = GIVEN[what]
    out = tmp_path / "r"
    go = partial(simulate, out=out, data=toy, model=model, say=lambda text: None)
    go({**TOY_SETTINGS, **words, "rounds": 2})
    own(OWN + "# edited")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=f"the source of {re.escape(named)}.*--fresh.*--changed-code"):
        go({**TOY_SETTINGS, **words, "rounds": 4})
    assert {path: path.read_bytes() for path in before} == before
    go({**TOY_SETTINGS, **words, "rounds": 4}, accept_changes=True)
    (change,) = facts(out)["went_on_with"]
    assert change.keys() == {"after_round", "own_code"}
    assert change["after_round"] == 2
    go({**TOY_SETTINGS, **words, "rounds": 5})  # what was accepted once is known
    own(OWN)
    with pytest.raises(UserError, match="the source of my_own"):
        go({**TOY_SETTINGS, **words, "rounds": 6})
    assert go({**TOY_SETTINGS, **words, "rounds": 5}).round == 5, "a finished run mixes nothing"


def test_before_the_first_finished_round_own_code_may_be_mended(own, tmp_path, toy):
    own(OWN.replace('name = "mine"', 'name = "mine"\n    def aggregate(self, *_): return 1 / 0'))
    with pytest.raises(UserError, match="ZeroDivisionError"):
        run_toy(tmp_path / "r", toy, algorithm="my_own:Mine", rounds=1)
    own(OWN)
    assert run_toy(tmp_path / "r", toy, algorithm="my_own:Mine", rounds=1).round == 1
    assert facts(tmp_path / "r")["went_on_with"][0]["after_round"] == 0


def test_another_kind_of_bits_needs_a_word_too_and_what_is_not_known_does_not(tmp_path, toy, monkeypatch):
    plain = {name: value for name, value in machine().items() if name != "bits"}
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: plain)
    run_toy(tmp_path / "r", toy, rounds=1)
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: plain | {"bits": "portable"})
    run_toy(tmp_path / "r", toy, rounds=2)
    monkeypatch.setattr("rebafl.runs.opening.machine", lambda: plain | {"bits": "native"})
    with pytest.raises(UserError, match="bits, 'portable' there and 'native' here"):
        run_toy(tmp_path / "r", toy, rounds=3)
    assert len(lines(tmp_path / "r")) == 2


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"m:a": "1"}, {"m:a": "1"}, []),
        ({"m:a": "1"}, {"m:a": "2"}, ["the source of m:a"]),
        ({"m:a": "1"}, {"m:b": "1"}, ["the source of m:a", "the source of m:b"]),
        ({"m:a": UNKNOWN}, {"m:a": "2"}, []),
        ({"m:a": "1"}, {"m:a": UNKNOWN}, []),
        ({"m:a": "1", "helper": "1"}, {"m:a": "1", "helper": "2"}, ["the source of helper"]),
        ({"m:a": "1"}, {"m:a": "1", "helper": "2"}, []),
    ],
)
def test_what_is_doubted(old, new, found):
    assert changes_to_accept({"own_code": old}, {"own_code": new}) == found
    assert changes_to_accept({}, {"own_code": new}) == changes_to_accept({"own_code": old}, {}) == []


class Maker:
    def __call__(self, shape, classes):
        return TinyNet(shape, classes)


def test_whatever_makes_a_model_is_found():
    settings = make_settings({"algorithm": "fedavg"})
    assert own_code(settings, MLP) == own_code(settings) == {}
    assert list(own_code(settings, partial(TinyNet))) == list(own_code(settings, TinyNet))
    assert list(own_code(settings, Maker()))[:1] == [f"{__name__}:Maker"]
    assert list(own_code(settings, lambda: TinyNet()))[:1] == [
        f"{__name__}:test_whatever_makes_a_model_is_found.<locals>.<lambda>"
    ]


SCRIPT = """
from rebafl.runs.origin import own_code
from rebafl.models.networks import MLP
from rebafl.runs.settings import make_settings
class Net(MLP):
    pass
print(own_code(make_settings({}), Net)["__main__:Net"])
"""


def test_of_a_script_only_the_definition_counts_and_what_was_typed_in_is_unknown(tmp_path):
    def said(*words):
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout.strip()

    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    first = said(str(file))
    assert first == sha256(b"class Net(MLP):\n    pass\n").hexdigest()
    file.write_text(SCRIPT + "print()  # an edit elsewhere\n")
    assert said(str(file)) == first
    assert said("-c", SCRIPT) == UNKNOWN


def test_a_sweep_does_not_compare_runs_of_two_versions_of_own_code(own, tmp_path):
    words = ["dataset=fashion-mini", "partition.clients=3", "partition.samples=20", "training.epochs=1", "workers=1",
             "algorithm=my_own:Mine", f"out={tmp_path / 's'}", "rounds=1"]  # fmt: skip

    def command(*more):
        result = CliRunner().invoke(cli.app, ["sweep", *words, *more])
        if isinstance(result.exception, UserError):
            raise result.exception
        return result

    command("seed=0", "-q")
    own(OWN + "# edited")
    with pytest.raises(UserError, match="the source of my_own:Base"):
        command("seed=0,1", "-q")
    assert len(list((tmp_path / "s").glob("*/config.toml"))) == 1
    assert command("seed=0,1", "-q", "--changed-code").exit_code == 0
    assert len(list((tmp_path / "s").glob("*/config.toml"))) == 2
    own(OWN + "# edited again")
    assert command("seed=1", "-q", "--fresh").exit_code == 0
    assert len(list((tmp_path / "s").glob("*/config.toml"))) == 1
    assert len(list((tmp_path / "s-before-1").glob("*/config.toml"))) == 2
    with (
        Record(next((tmp_path / "s").glob("*/config.toml")).parent).locked(),
        pytest.raises(UserError, match="being written"),
    ):
        command("seed=1", "-q", "--fresh")
    assert not (tmp_path / "s-before-2").exists()


def test_a_fresh_start_keeps_what_was_there_aside(own, tmp_path, toy):
    out = tmp_path / "r"
    go = partial(simulate, {**TOY_SETTINGS, "algorithm": "my_own:Mine", "rounds": 2}, out, data=toy, model=TinyNet)
    go(say=lambda text: None)
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    own(OWN + "# edited")
    said: list[str] = []
    assert go(fresh=True, say=said.append).round == 2
    assert said == [f"What {out} held is now in {out}-before-1."]
    assert {path.name: path.read_bytes() for path in (tmp_path / "r-before-1").rglob("*") if path.is_file()} == before
    assert facts(out)["own_code"] != facts(tmp_path / "r-before-1")["own_code"]
    assert "went_on_with" not in facts(out)
    go(fresh=True, say=said.append)
    assert (tmp_path / "r-before-2" / "config.toml").exists()


def test_a_fresh_start_where_nothing_was_is_a_start_and_takes_no_foreign_folder(tmp_path, toy):
    assert simulate(TOY_SETTINGS, tmp_path / "r", data=toy, model=TinyNet, fresh=True, say=lambda text: None).round == 3
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="cannot hold a new run"):
        simulate(TOY_SETTINGS, tmp_path / "f", data=toy, model=TinyNet, fresh=True, say=lambda text: None)
    assert (tmp_path / "f" / "thesis.txt").exists()


def test_a_module_of_the_users_that_own_code_imports_counts_too(own, tmp_path, toy, monkeypatch):
    (tmp_path / "my_package").mkdir()
    files = {
        "my_package/__init__.py": "",
        "my_package/constants.py": "RATE = 1.0\n",
        "my_package/tools.py": "import math\nfrom .constants import RATE\nimport numpy\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    own("from my_package.tools import RATE\n" + OWN)
    try:
        run = run_toy(tmp_path / "r", toy, algorithm="my_own:Mine", rounds=1)
        helpers = {name for name in run.environment()["own_code"] if name.startswith("my_package")}
        assert helpers == {"my_package", "my_package.tools", "my_package.constants"}
        (tmp_path / "my_package" / "constants.py").write_text("RATE = 2.0\n")
        with pytest.raises(UserError, match=r"the source of my_package\.constants\)"):
            run_toy(tmp_path / "r", toy, algorithm="my_own:Mine", rounds=2)
    finally:
        for name in [name for name in sys.modules if name.startswith("my_package")]:
            del sys.modules[name]
