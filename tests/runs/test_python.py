"""`rebafl.simulate` takes settings in any form and shows progress; what comes back has curves and the model."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rebafl
from rebafl.algorithms.fedprox import FedProx
from rebafl.base.errors import UserError
from rebafl.runs.events import ClientsTrained, Event, RunStarted
from rebafl.runs.python import Counted
from rebafl.runs.settings import make_settings
from support.toy import TOY_SETTINGS, TinyNet, quiet, round_line, run_toy, same_bits, weights


def test_dotted_nested_keyword_and_object_settings_are_the_same():
    nested = make_settings({"algorithm": {"kind": "fedprox", "mu": 0.5}, "rounds": 3})
    for layers in (
        [{"algorithm": "fedprox", "algorithm.mu": 0.5, "rounds": 3}],
        [{"algorithm.mu": 0.5, "algorithm": "fedprox", "rounds": 3}],
        [{"algorithm": {"kind": "fedprox"}, "algorithm.mu": 0.5}, {"rounds": 3}],
        [{"algorithm": FedProx(mu=0.5), "rounds": 3}],
        [{"algorithm": FedProx(mu=0.1), "rounds": 9}, {"algorithm.mu": 0.5, "rounds": 3}],
    ):
        assert make_settings(*layers) == nested
    assert make_settings({"dataset": Path("my.npz")}).dataset == "my.npz"
    for key, meant in (("lr", "training.lr"), ("classes", "partition.classes"), ("p", "participation.p")):
        with pytest.raises(UserError, match=rf"^Unknown key '{key}'; did you mean {meant}\?$"):
            make_settings({key: 1})
    with pytest.raises(UserError, match=r"Unknown key 'algorithm\.mo'"):
        make_settings({"algorithm": "fedprox", "algorithm.mo": 0.5})


def test_keywords_win_and_an_own_algorithm_may_be_an_object(tmp_path, toy):
    words: dict[str, Any] = {**TOY_SETTINGS, "rounds": 9, "algorithm.mu": 0.25, "algorithm": "fedprox"}
    run = rebafl.simulate(words, str(tmp_path / "a"), toy, TinyNet, rounds=2, seed=5, say=quiet)
    assert (run.round, run.config()["seed"], run.config()["algorithm"]["mu"]) == (2, 5, 0.25)
    words = {**TOY_SETTINGS, "rounds": 2, "algorithm": FedProx(mu=0.25)}
    again = rebafl.simulate(out=tmp_path / "b", data=toy, model=TinyNet, say=quiet, seed=5, **words)
    assert same_bits(weights(run), weights(again))
    with pytest.raises(UserError, match="not both"):
        rebafl.simulate(make_settings(TOY_SETTINGS), tmp_path / "c", toy, TinyNet, rounds=2)


def test_without_a_directory_one_is_named_after_the_settings(tmp_path, monkeypatch, toy):
    monkeypatch.chdir(tmp_path)
    run = rebafl.simulate({**TOY_SETTINGS, "rounds": 1}, data=toy, model=TinyNet, say=quiet)
    assert re.fullmatch(r"runs/toy-rebafl-seed0-\w{6}", str(run.path))
    assert rebafl.simulate({**TOY_SETTINGS, "rounds": 2}, data=toy, model=TinyNet, say=quiet).path == run.path


def test_the_curves_are_those_of_the_rounds(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="feddyn")
    lines, curves = run.rounds(), run.curves
    assert curves["round"].tolist() == [1, 2, 3]
    assert run.accuracy.tolist() == [line.accuracy for line in lines]
    assert curves["active"].tolist() == [len(line.active) for line in lines]
    assert curves["cloud_accuracy"].tolist() == [line.other_accuracies["cloud"] for line in lines]
    assert np.isnan(curves["epsilon"]).all()
    assert run.recall.shape == (3, 4)
    assert run.recall[-1].tolist() == list(lines[-1].recall)
    assert repr(run) == f"<Run {str(run.path)!r}: 3 rounds, accuracy {lines[-1].accuracy:.2f}>"


def test_a_frame_where_pandas_is_installed_and_a_sentence_where_not(tmp_path, toy, monkeypatch):
    run = run_toy(tmp_path / "r", toy)

    class Pandas:
        class DataFrame(dict):
            def astype(self, types):
                return self

            def set_index(self, name):
                return self

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    frame = run.frame()
    assert list(frame["recall 3"]) == run.recall[:, 3].tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        run.frame()


def test_the_model_gives_what_was_scored(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy)
    for trained in (run.model(), rebafl.load(run.path).model(TinyNet)):
        right = (trained(toy.x_test).argmax(1) == toy.y_test).float().mean() * 100
        assert float(right) == pytest.approx(run.accuracy[-1], abs=1e-4)
        assert trained.classes == run.classes
        assert not trained.training
    with pytest.raises(UserError, match="model from Python"):
        rebafl.load(str(run.path)).model()
    with pytest.raises(UserError, match=r"takes inputs of shape \(n, 6\), not \(6,\)"):
        run.model()(toy.x_test[0])


def test_the_model_of_images_takes_them_channels_first(tmp_path):
    words: dict[str, Any] = {"dataset": "fashion-mini", "model": "mlp", "partition": {"clients": 2, "samples": 40},
                             "training.epochs": 1}  # fmt: skip
    run = rebafl.simulate(words, tmp_path / "r", say=quiet, workers=1, rounds=1)
    images = np.zeros((3, 1, 28, 28), dtype=np.uint8)
    trained, stored = run.model(), rebafl.model_of_run(run.path)
    assert torch.equal(trained(images), stored.logits(torch.zeros(3, 28, 28, 1, dtype=torch.uint8)))
    with pytest.raises(UserError, match=r"shape \(n, 1, 28, 28\)"):
        trained(images.reshape(3, 28, 28, 1))


def test_load_opens_what_is_there_and_nothing_else(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy)
    assert rebafl.load(str(run.path)).round == 3
    assert rebafl.load(run.path).accuracy.tolist() == run.accuracy.tolist()
    with pytest.raises(UserError, match="holds no run"):
        rebafl.load(tmp_path)


def test_progress_counts_up_in_one_line_and_passes_everything_on():
    heard: list[Event] = []
    text = io.StringIO()
    shown = Counted(make_settings({"rounds": 4}), heard.append, text)
    events: list[Event] = [
        RunStarted(1, ["beware"]), ClientsTrained(3, 3), round_line(round=2, active=[0], accuracy=51.5),
        round_line(round=3, active=[0, 1], refused={1: "NaN"}, accuracy=52.0),
        round_line(round=4, active=[0], updated=False, discarded="w holds NaN"),
    ]  # fmt: skip
    for event in events:
        shown(event)
    shown.end()
    assert heard == events
    lines = [line.split("\r")[-1].strip() for line in text.getvalue().split("\n")]
    assert lines == [
        "Warning: beware",
        "Round 3: 1 upload was refused, client 1's as NaN.",
        "Round 4: the new model was discarded: w holds NaN; the model is unchanged.",
        "rebafl  round 4/4  accuracy 0.00",
        "",
    ]
    assert "round 2/4  accuracy 51.50" in text.getvalue()


def test_nobody_looks_at_a_pipe_and_everybody_who_asks_sees(tmp_path, toy, capsys):
    simulate: dict[str, Any] = {"settings": {**TOY_SETTINGS, "rounds": 1}, "data": toy, "model": TinyNet, "say": quiet}
    rebafl.simulate(out=tmp_path / "a", **simulate)
    assert capsys.readouterr() == ("", "")
    rebafl.simulate(out=tmp_path / "b", progress=True, **simulate)
    assert "round 1/1  accuracy" in capsys.readouterr().err


NOTEBOOK = """
import sys, types
class ZMQInteractiveShell: pass
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: ZMQInteractiveShell())
import rebafl
words = {"dataset": "fashion-mini", "model": "mlp", "partition.clients": 2, "partition.samples": 20}
rebafl.simulate(words, "r", rounds=1, workers=1)
"""


def test_a_notebook_shows_it_where_it_shows_what_is_printed(tmp_path):
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert "round 1/1  accuracy" in done.stdout, done.stderr
    assert done.stderr == ""
