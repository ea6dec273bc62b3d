"""Own data sets, models, partitions, participations and algorithms: named by module:Class or by a short name, alike."""

import json
import re
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rebafl import Data, UserError, cli, from_arrays, make_settings, simulate
from rebafl import data as datasets
from rebafl.algorithms import KINDS as ALGORITHMS
from rebafl.base.kinds import Kinds
from rebafl.data import KNOWN
from rebafl.models.choice import KINDS as MODELS
from rebafl.population.participation import KINDS as PARTICIPATIONS
from rebafl.population.splitting import KINDS as PARTITIONS
from rebafl.runs.record import Record
from support.grid import CLIENTS, CONFIG, FakeGrid, as_in_a_task, nodes_of, run
from support.toy import lines, same_bits, weights

DOCS = Path(__file__).parent.parent / "docs"
NETS = """
from rebafl.models.networks import MLP

def net(shape, classes):
    return MLP(shape, classes)
"""
OWN = {
    "dataset": "digits:digits",
    "model": "nets:net",
    "partition": {"kind": "shifts:InOrder", "clients": 4, "share": 0.5},
    "participation": {"kind": "shifts:Shifts", "count": 2},
    "delivery": {"kind": "shifts:Shifts", "count": 1},
    "algorithm": {"kind": "decay:TiredClients", "rate": 0.5},
    "training": {"epochs": 1},
    "workers": 1,
    "rounds": 3,
}
WORDS = [
    "dataset=digits:digits", "model=nets:net", "partition=shifts:InOrder", "partition.clients=4", "partition.share=0.5",
    "participation=shifts:Shifts", "participation.count=2", "delivery=shifts:Shifts", "delivery.count=1",
    "algorithm=decay:TiredClients", "algorithm.rate=0.5", "training.epochs=1", "workers=1", "rounds=3",
]  # fmt: skip
SHORT = {"datasets": ("my-digits", "digits:digits"), "models": ("my-net", "nets:net"),
         "partitions": ("in-order", "shifts:InOrder"), "participations": ("shifts", "shifts:Shifts"),
         "algorithms": ("tired-clients", "decay:TiredClients")}  # fmt: skip


def quiet(text):
    return None


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The modules that the documents show, saved in the current folder as a user would, and a way to edit them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within the same second must count
    pages = [(DOCS / name).read_text() for name in ("own-algorithm.md", "own-data-and-model.md")]
    shown = dict(re.findall(r"```python\n# (\w+)\.py\n(.+?)```", "".join(pages), re.DOTALL)) | {"nets": NETS}
    assert shown.keys() == {"decay", "heavy", "digits", "shifts", "nets"}

    def save(module, text):
        Path(f"{module}.py").write_text(textwrap.dedent(text))
        sys.modules.pop(module, None)

    for module, text in shown.items():
        save(module, text)
    yield save
    for module in shown:
        sys.modules.pop(module, None)


@pytest.fixture
def short_names(own, monkeypatch):
    points = EntryPoints([EntryPoint(name, place, f"rebafl.{group}") for group, (name, place) in SHORT.items()])
    monkeypatch.setattr("rebafl.base.kinds.entry_points", lambda **chosen: points.select(**chosen))


def command(*words):
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_everything_own_runs_in_workers_and_resumes_to_the_same_bits(own):
    whole = simulate(OWN, "w", say=quiet)
    simulate({**OWN, "rounds": 1}, "r", say=quiet)
    resumed = simulate({**OWN, "workers": 2}, "r", say=quiet)
    assert same_bits(weights(whole), weights(resumed))
    assert lines(Path("w")) == lines(Path("r"))
    assert [list(line.active) for line in whole.rounds()] == [[1, 3], [0, 2], [1, 3]]
    config = whole.config()
    assert (config["dataset"], config["model"]["kind"]) == ("digits:digits", "nets:net")
    assert config["partition"] == {"kind": "shifts:InOrder", "clients": 4, "share": 0.5}
    assert config["delivery"] == {"kind": "shifts:Shifts", "count": 1}
    assert whole.environment()["own_code"].keys() == {
        "digits:digits", "nets:net", "shifts:InOrder", "shifts:Shifts", "decay:TiredClients",
    }  # fmt: skip


def test_everything_own_works_in_the_commands(own):
    shown = command("settings", *WORDS)
    Path("own.toml").write_text(shown)
    command("run", "own.toml", "out=r", "-q")
    assert Record(Path("r")).config()["partition"]["kind"] == "shifts:InOrder"
    command("partition", *WORDS, "--save", "split.json", "-q")
    assert json.loads(Path("split.json").read_text())[0] == list(range(50))
    found = json.loads(command("sweep", *WORDS, "seed=0,1", "rounds=1", "out=s", "--json"))
    assert len(found[0]["runs"]) == 2
    command("run", "out=r", "rounds=4", "-q")
    assert json.loads(command("compare", "r", "--json"))[0]["runs"][0]["rounds"] == 4


def test_the_directory_of_an_own_data_set_is_named_by_its_function(own):
    assert make_settings({"dataset": "my.package:digits"}).label.startswith("digits-rebafl-seed0-")


@pytest.mark.parametrize("module", ["digits", "nets", "shifts", "decay"])
def test_edited_own_code_is_refused_until_the_user_says_so(own, module):
    simulate({**OWN, "rounds": 1}, "r", say=quiet)
    own(module, Path(f"{module}.py").read_text() + "\n# edited\n")
    with pytest.raises(UserError, match=f"the source of {module}:.+--changed-code"):
        simulate(OWN, "r", say=quiet)
    assert simulate(OWN, "r", say=quiet, accept_changes=True).round == 3


def test_exporting_does_not_import_own_data_sets(own):
    simulate({**OWN, "rounds": 1}, "r", say=quiet)
    Path("digits.py").unlink()
    sys.modules.pop("digits", None)
    command("export", "r", "--to", "exported", "--trust-code")
    assert "digits" not in sys.modules
    with pytest.raises(UserError, match=r"dataset: digits:digits cannot be imported \(ModuleNotFoundError"):
        command("run", "out=r", "rounds=2")


def test_nodes_of_a_federation_find_them_too(own, monkeypatch):
    as_in_a_task(monkeypatch)
    keys = {"dataset": "digits:digits", "model": "nets:net", "partition.kind": "shifts:InOrder", "partition.share": 0.5,
            "participation.kind": "shifts:Shifts", "algorithm": "decay:TiredClients"}  # fmt: skip
    config = {**CONFIG, **keys, "settings": "training.epochs=1", "out": "f", "deadline": 5.0}
    record = run(config, FakeGrid(nodes_of(config, Path("kept"))))
    assert len(record.rounds()) == CONFIG["rounds"]
    assert not any(line.refused for line in record.rounds())
    alike = {"dataset": "digits:digits", "model": "nets:net", "algorithm": "decay:TiredClients", "rounds": 3,
             "partition": {"kind": "shifts:InOrder", "clients": CLIENTS, "share": 0.5},
             "participation": "shifts:Shifts", "training": {"epochs": 1}, "workers": 1}  # fmt: skip
    assert same_bits(weights(record), weights(simulate(alike, "s", say=quiet)))


def test_short_names_of_installed_packages_are_found(short_names):
    words = {"dataset": "my-digits", "model": "my-net", "partition": {"kind": "in-order", "clients": 4},
             "participation": "shifts", "delivery": "shifts", "algorithm": "tired-clients", "rounds": 1,
             "training": {"epochs": 1}, "workers": 1}  # fmt: skip
    record = simulate(words, "r", say=quiet)
    config = record.config()
    assert [config[name]["kind"] for name in ("model", "partition", "delivery", "algorithm")] == [
        "my-net", "in-order", "shifts", "tired-clients",
    ]  # fmt: skip
    assert make_settings(config) == make_settings(words)
    assert "shifts:InOrder" in record.environment()["own_code"]
    command("export", "r", "--to", "exported")
    assert "digits:digits" in command("datasets")


SORTS: dict[str, Kinds[Any]] = {
    "algorithm": ALGORITHMS,
    "model": MODELS,
    "partition": PARTITIONS,
    "participation": PARTICIPATIONS,
    "dataset": KNOWN,
}


@pytest.mark.parametrize("what", list(SORTS))
def test_what_is_not_there_is_refused_in_the_same_words(short_names, what):
    kinds = SORTS[what]
    name = next(iter(kinds))
    offered = SHORT[f"{what}s"][0]
    with pytest.raises(UserError) as error:
        kinds.find(f"{name}x")
    names = ", ".join(sorted([*kinds, offered]))
    sentence = f"{what}: there is no '{name}x' (did you mean '{name}'?); there are: {names}; or give module:"
    assert str(error.value).startswith(sentence)
    for word, reason in {
        "nowhere:X": r"nowhere:X cannot be imported \(ModuleNotFoundError: ",
        "math:pie": r"math:pie cannot be imported \(AttributeError: ",
        "math:pi": "math:pi (is not a class with a name, derived from|cannot be called to make a)",
    }.items():
        with pytest.raises(UserError, match=f"^{what}: {reason}"):
            kinds.find(word)
    with pytest.raises(UserError, match=f"^{what}: there is no 3; there are: "):
        kinds.find(3)
    assert kinds.kind_of(kinds[name]) == name
    place = SHORT[f"{what}s"][1]
    assert kinds.kind_of(kinds.find(place)) == kinds.kind_of(kinds.find(offered)) == offered


def test_delivery_is_named_in_its_messages():
    with pytest.raises(UserError, match=r"^delivery: there is no 'alwyas' \(did you mean 'always'"):
        make_settings({"delivery": "alwyas"})


WRONG = """
from rebafl import Partition, Participation, Split, parameters
import numpy as np

@parameters
class NoSplit(Partition):
    name = "no-split"

@parameters
class Cut(Partition):
    name = "cut"
    fault: str = ""
    def split(self, labels, classes, seed):
        if self.fault == "raises":
            raise KeyError("oh")
        if self.fault == "list":
            return []
        if self.fault == "clients":
            return Split(self.clients + 1, classes, labels, lambda client: np.arange(3))
        held = {"empty": [], "far": [10**6], "floats": [0.5], "lists": [[1]]}[self.fault]
        return Split(self.clients, classes, labels, lambda client: np.array(held, dtype=None if held else int))

@parameters
class There(Participation):
    name = "there"
    fault: str = ""
    def present(self, clients, seed, round, purpose):
        if self.fault == "raises":
            return 1 / 0
        return {"short": np.ones(1, dtype=bool), "numbers": np.arange(clients)}[self.fault]
"""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raises", "KeyError: 'oh'"),
        ("list", "it gave back a list where a rebafl.Split is needed"),
        ("clients", "it gave back 5 clients and 4 classes where 4 and 4 are needed"),
        ("empty", "client 0 must hold a list of positions, at least one"),
        ("far", "client 0 must hold positions between 0 and 399"),
        ("floats", "client 0 must hold a list of positions"),
        ("lists", "client 0 must hold a list of positions"),
    ],
)
def test_a_wrong_partition_is_one_sentence(own, fault, said):
    own("shifts", WRONG)
    words = {**OWN, "partition": {"kind": "shifts:Cut", "clients": 4, "fault": fault}, "participation": "always",
             "delivery": "always"}  # fmt: skip
    with pytest.raises(
        UserError, match=r"^partition: split\(\) of shifts:Cut failed( at \S+/shifts\.py:\d+)? \("
    ) as error:
        simulate(words, "r", say=quiet)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("short", r"bool of shape \(1,\) where 4 truth values are needed"),
        ("numbers", r"int64 of shape \(4,\) where"),
        ("raises", "ZeroDivisionError"),
    ],
)
def test_a_wrong_participation_is_one_sentence(own, fault, said):
    own("nets", WRONG + NETS)
    for section in ("participation", "delivery"):
        with pytest.raises(UserError, match=f"^{section}: present\\(\\) of nets:There failed .*{said}"):
            simulate({**OWN, section: {"kind": "nets:There", "fault": fault}}, "r", say=quiet)


def test_a_class_without_its_method_is_refused(own):
    own("nets", WRONG)
    with pytest.raises(UserError, match=r"^partition: nets:NoSplit does not define split\(\)\.$"):
        make_settings({"partition": "nets:NoSplit"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "gave back a int where rebafl.Data are needed; make them with rebafl.from_arrays"),
        ("return 1 / 0", r"failed at \S+/digits\.py:2 \(ZeroDivisionError: division by zero\)"),
        ("import rebafl; return rebafl.from_arrays('x', {})", "lacks x_train, y_train"),
    ],
)
def test_a_wrong_data_set_is_one_sentence(own, body, said):
    own("digits", f"def digits():\n    {body}\n")
    with pytest.raises(UserError, match=said):
        datasets.load("digits:digits")


def test_names_win_over_paths_and_paths_over_modules(short_names, monkeypatch):
    x, y = np.zeros((4, 3), dtype=np.float32), np.arange(4) % 2
    for name in ("my-digits", "digits:digits", "fashion-mini"):
        with Path(name).open("wb") as file:
            np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    assert len(datasets.load("my-digits").y_train) == 400
    assert len(datasets.load("digits:digits").y_train) == 4
    assert len(datasets.load("fashion-mini").y_train) == 6000


ARRAYS: dict[str, Any] = {"x_train": np.zeros((4, 3), dtype=np.float32), "y_train": np.arange(4) % 2,
          "x_test": np.zeros((2, 3), dtype=np.float32), "y_test": np.arange(2)}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({"y_train": np.array([0.5, 1, 0, 1])}, {}, "y_train must hold one whole number"),
        ({"x_test": np.zeros((2, 4))}, {}, "make them alike"),
        ({"x_train": np.full((4, 3), np.nan)}, {}, "NaN"),
        ({}, {"classes": ["a"]}, "labels up to 1 but only 1 classes"),
        ({}, {"mean": [0.0, 1.0], "std": [1.0]}, "mean and std need 3 numbers"),
    ],
)
def test_arrays_are_looked_at(changes, more, said):
    with pytest.raises(UserError, match=said):
        from_arrays("mine", {**ARRAYS, **changes}, **more)


def test_arrays_become_data():
    data = from_arrays("mine", ARRAYS, classes=["a", "b"], mean=[0.0], std=[2.0])
    assert isinstance(data, Data)
    assert data.classes == ("a", "b")
    assert data.inputs(data.x_train + 1).tolist() == [[0.5] * 3] * 4


@pytest.mark.parametrize(
    ("hook", "now"),
    [
        ("finish", "share() and next_state()"),
        ("client_state", "client_state_template()"),
        ("shared", "shared_template()"),
    ],
)
def test_an_algorithm_with_an_old_hook_is_refused(own, hook, now):
    own(
        "decay",
        f"""
        from rebafl import Algorithm, parameters

        @parameters
        class Old(Algorithm):
            name = "old"

            def {hook}(self, *_):
                return {{}}
    """,
    )
    with pytest.raises(UserError) as error:
        make_settings({"algorithm": "decay:Old"})
    assert str(error.value) == (
        f"algorithm: decay:Old defines {hook}(), which is called {now} now; see docs/own-algorithm.md."
    )


def test_a_hook_that_is_misspelt_is_refused(own):
    """It would never be called."""
    source = """
        from rebafl import Algorithm, parameters

        @parameters
        class Mine(Algorithm):
            name = "mine"

            def {}(self, *_):
                return {{}}
    """
    own("decay", source.format("agregate"))
    with pytest.raises(UserError) as error:
        make_settings({"algorithm": "decay:Mine"})
    assert str(error.value) == (
        "algorithm: decay:Mine defines agregate(), which nothing calls; did you mean aggregate()? "
        "If it is a helper of your own, call it _agregate."
    )
    for helper in ("_agregate", "gram_matrix", "evaluate", "shared_mean"):
        own("decay", source.format(helper))
        assert make_settings({"algorithm": "decay:Mine"}).algorithm.name == "mine"


@pytest.mark.slow
def test_own_modules_are_found_in_the_current_folder_by_the_command(own, tmp_path):
    words = [sys.executable, "-m", "rebafl", "run", *WORDS, "workers=2", "out=r", "-q"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert len(Record(tmp_path / "r").rounds()) == 3
