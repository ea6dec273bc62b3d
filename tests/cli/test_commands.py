"""The commands as a person types them."""

import json
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.runs.sweep import alternatives
from support.toy import lines

QUICK = [
    "dataset=fashion-mini",
    "partition.clients=4",
    "partition.samples=40",
    "training.epochs=1",
    "rounds=2",
    "workers=1",
]


def rebafl(*words):
    """Exit code, standard output, standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "rebafl", *map(str, words)], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def inside(*words):
    """The same without a new process: what was printed, or the sentence of the error."""
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, seed in (("fedavg", 0), ("rebafl", 0), ("rebafl", 1)):
        inside("run", *QUICK, f"algorithm={name}", f"seed={seed}", f"out={folder / f'{name}{seed}'}", "-q")
    return folder


@pytest.mark.slow
def test_a_run_from_the_outside(tmp_path):
    code, out, err = rebafl("run", *QUICK, f"out={tmp_path / 'a'}")
    assert code == 0
    assert "round 2/2" in err
    assert "worst class" in out
    code, out, err = rebafl("run", f"out={tmp_path / 'a'}", "rounds=3", "--json")
    assert json.loads(out)["rounds"] == 3
    assert err == ""
    code, out, err = rebafl("run", f"out={tmp_path / 'a'}", "algorithm=fedavg")
    assert (code, out) == (2, "")
    assert "holds a run with other settings" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(tmp_path):
    words = [sys.executable, "-m", "rebafl", "run", *QUICK, "workers=2", "rounds=500", f"out={tmp_path / 'a'}"]
    # a shell that starts tests in its background has them ignore Ctrl-C, and children inherit that
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heed)
    while not (tmp_path / "a" / "rounds.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"rebafl run out={tmp_path / 'a'}" in err
    assert "Traceback" not in err
    done = int(re.search(r"saved: (\d+) of 500", err)[1])
    code, out, _ = rebafl("run", f"out={tmp_path / 'a'}", f"rounds={done + 1}", "--json")
    assert (code, json.loads(out)["rounds"]) == (0, done + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["run", "rouds=3"], ["run", "dataset=nothing"], ["run", "algorithm=fedavgg"], ["run", "participation.p=1.5"],
        ["run", "no.toml"], ["compare", "nowhere"], ["data", "get", "nothing"], ["frobnicate"], ["run", "--frobnicate"],
    ],
)  # fmt: skip
def test_wrong_input_is_exit_code_2_and_no_traceback(tmp_path, words):
    code, out, err = rebafl(*words)
    assert code == 2
    assert "Traceback" not in err + out
    assert err.strip()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "partition.classes=11", "dataset=fashion-mini"], "cannot hold 11 classes"),
        (["run", "partition.samples=5000", "dataset=fashion-mini"], "more than the 600"),
        (["run", "model=mlpp", "dataset=fashion-mini"], "did you mean 'mlp'"),
        (["run", "out=", "dataset=fashion-mini"], "out must be"),
        (["partition", "dataset=fashion-mini", "partition=even", "partition.clients=3"], "cannot share"),
        (["run", "out=runs/typo"], r"no run in runs/typo to resume.*dataset=fashion-mini rounds=20 out=runs/typo"),
        (["run", "out=runs/typo", "rounds=300"], "no run in runs/typo to resume"),
        (["sweep", "out=runs/s"], "A sweep needs settings to combine"),
        (["predict", "nowhere", "x.png"], "holds no run"),
        (["export", "nowhere"], "holds no run"),
        (
            ["run", "algorithm=rebafl[mu=0.1,0.5]"],
            r"names 2 settings; give one of them, or all of them to rebafl sweep",
        ),
        (["run", "algorithm=fedavg,rebafl"], "names 2 settings"),
        (["compare", "somewhere", "--to", "nan"], "--to nan is no percentage; give a number from 0 to 100"),
        (["compare", "somewhere", "--to", "inf"], "--to inf is no percentage"),
        (["compare", "somewhere", "--to=-0.5"], "--to -0.5 is no percentage"),
    ],
)
def test_wrong_input_says_what_and_where(tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=reason):
        inside(*words)


@pytest.mark.parametrize(
    "command",
    [
        "compare", "export", "log", "predict", "privacy audit", "report", "rollback", "runs", "stop", "tag", "ui",
        "verify",
    ],
)  # fmt: skip
def test_an_empty_path_is_not_the_current_folder(runs, monkeypatch, command):
    """`rebafl stop "$RUN"` where RUN is not set, inside a run's own directory."""
    monkeypatch.chdir(runs / "fedavg0")
    with pytest.raises(UserError, match="A path is empty"):
        inside(*command.split(), "", *(["shoe.png"] if command == "predict" else []))


def test_broken_toml(tmp_path):
    (tmp_path / "c.toml").write_text("rounds = = 3")
    with pytest.raises(UserError, match=r"c\.toml cannot be read as TOML"):
        inside("run", tmp_path / "c.toml")


def test_the_stored_config_runs_again_to_the_same_numbers(runs, tmp_path):
    inside("run", runs / "rebafl0" / "config.toml", f"out={tmp_path / 'again'}", "-q")
    assert lines(tmp_path / "again") == lines(runs / "rebafl0")


def test_compare_groups_seeds_and_draws(runs, tmp_path):
    result = inside("compare", *(runs / n for n in ("fedavg0", "rebafl0", "rebafl1")), "--png", tmp_path / "c.png")
    assert "seeds" in result.output
    assert re.search(r"rebafl\s+2 ", result.output)
    with Image.open(tmp_path / "c.png") as image:
        assert image.width > 800
    groups = json.loads(
        inside("compare", runs / "fedavg0", runs / "rebafl1", "--json", "--png", tmp_path / "d.png").output
    )
    assert [group["label"] for group in groups] == ["fedavg", "rebafl"]
    assert groups[1]["runs"][0]["seed"] == 1


def test_sweep_runs_a_grid_once_and_compares_it(tmp_path):
    words = [*QUICK, "rounds=1", "algorithm=fedavg,rebafl", "seed=0,1", f"out={tmp_path / 's'}"]
    groups = json.loads(inside("sweep", *words, "--json").output)
    assert {group["label"]: len(group["runs"]) for group in groups} == {"fedavg": 2, "rebafl": 2}
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    assert len(files) == 4
    assert inside("sweep", *words, "-q").output == ""
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert "± " in inside("sweep", *words).output
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert (tmp_path / "s" / "curves.png").exists()


def test_sweep_refuses_a_wrong_cell_before_any_is_run(tmp_path):
    with pytest.raises(UserError, match=r"participation\.p = 1\.5"):
        inside("sweep", *QUICK, "participation.p=0.5,1.5", f"out={tmp_path / 's'}")
    assert not (tmp_path / "s").exists()


def test_a_kind_with_its_settings_in_brackets_is_understood_where_one_run_is_named():
    """As `rebafl sweep` takes it and `rebafl advise` names it."""
    short, long = (
        inside("settings", "algorithm=rebafl[mu=5.0]"),
        inside("settings", "algorithm=rebafl", "algorithm.mu=5.0"),
    )
    assert short.output == long.output


def test_commas_within_a_value_do_not_split_it():
    assert alternatives("[0.5,0.2],[0.1,0.1]") == ["[0.5,0.2]", "[0.1,0.1]"]
    assert alternatives("a,'b,c'") == ["a", "'b,c'"]
    assert alternatives("0.5") == ["0.5"]


def test_a_finished_run_says_so(runs):
    assert "finished already: 2 rounds" in inside("run", f"out={runs / 'fedavg0'}").stderr


def test_pictures_of_many_and_of_short_runs(runs, tmp_path):
    """Many groups with long labels, one round each: no warning, and a point where there is no line."""
    words = [*QUICK, "rounds=1", "participation=always,markov", "partition.samples=40,42,44", f"out={tmp_path / 's'}"]
    output = inside("sweep", *words).stdout
    assert "participation=markov" in output
    assert max(len(line) for line in output.splitlines() if "samples=" in line) < 130


def test_partition_shows_draws_and_saves(tmp_path):
    words = ["dataset=fashion-mini", "partition=dirichlet", "partition.clients=5"]
    result = inside("partition", *words, "--png", tmp_path / "p.png", "--save", tmp_path / "p.json")
    assert "Trouser" in result.output
    assert (tmp_path / "p.png").stat().st_size > 10_000
    again = ["dataset=fashion-mini", "partition=file", f"partition.path={tmp_path / 'p.json'}", "partition.clients=5"]
    table = [row for row in result.output.splitlines() if row.startswith("│")]
    second = inside("partition", *again, "--png", tmp_path / "q.png").output.splitlines()
    assert [row for row in second if row.startswith("│")] == table


def test_export_and_predict(runs, tmp_path):
    assert "model.safetensors" in inside("export", runs / "rebafl0", "--to", tmp_path / "e").output
    Image.fromarray(np.full((28, 28), 200, np.uint8)).save(tmp_path / "x.png")
    for source in (runs / "rebafl0", tmp_path / "e"):
        (row,) = json.loads(inside("predict", source, tmp_path / "x.png", "--json").output)
        assert sum(row["probabilities"].values()) == pytest.approx(1)
    prior = ",".join(["0"] * 9 + ["1"])
    assert "Ankle boot" in inside("predict", tmp_path / "e", tmp_path / "x.png", "--prior", prior).output
    with pytest.raises(UserError, match="numbers with commas"):
        inside("predict", tmp_path / "e", tmp_path / "x.png", "--prior", "a,b")


def test_lists(tmp_path):
    assert {"fedavg", "bsm-fedavg", "rebafl"} <= set(inside("algorithms").output.split())
    assert "fashion-mini" in inside("datasets").output
    assert inside("data", "list").output == inside("datasets").output
    assert "fashion-mini is complete and correct: 6,000 + 1,000" in inside("data", "get", "fashion-mini").output
    assert re.fullmatch(r"rebafl \d+\.\d+\.\d+\n", inside("--version").output)
    (tmp_path / "s.toml").write_text(inside("settings", *QUICK).output)
    assert inside("settings", tmp_path / "s.toml").output == (tmp_path / "s.toml").read_text()


@pytest.mark.parametrize(
    "words", [[], ["run"], ["compare"], ["partition"], ["export"], ["predict"], ["algorithms"], ["datasets"],
              ["data", "get"], ["data", "list"], ["settings"], ["sweep"], ["data"]]
)  # fmt: skip
def test_help_has_an_example(words):
    assert re.search(r"Examples?:", inside(*words, "--help").output)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["run", "dataset=[/foo]"], ["data", "get", "[/x]"], ["run", "out=" + "x" * 300]])
def test_odd_words_are_said_as_they_are(words):
    code, _, err = rebafl(*words)
    assert code == 2
    assert "Traceback" not in err
    assert words[-1][-6:] in err


def test_a_broken_trace_leaves_no_directory_behind(tmp_path):
    with pytest.raises(UserError, match="trace"):
        inside(
            "run", *QUICK, "participation=trace", f"participation.path={tmp_path / 't.csv'}", f"out={tmp_path / 'a'}"
        )
    assert not (tmp_path / "a").exists()


def test_the_version_is_said_without_importing_torch():
    code = (
        "import sys; sys.argv = ['rebafl', '--version']; import atexit; "
        "atexit.register(lambda: print('torch' in sys.modules)); import rebafl"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert re.fullmatch(r"rebafl \d+\.\d+\.\d+\nFalse\n", done.stdout)
    assert done.returncode == 0


def test_the_demo_compares_two_methods_and_takes_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = inside("demo", "rounds=1", "partition.clients=3", "partition.samples=20", "training.epochs=1", "workers=1")
    assert all(name in result.stdout for name in ("fedavg", "rebafl", "demo/curves.png"))
    assert (tmp_path / "demo" / "curves.png").stat().st_size > 5000
    for words in (["algorithm=fedprox"], ["algorithm.mu=1"]):
        with pytest.raises(UserError, match="The demo takes settings"):
            inside("demo", *words)
