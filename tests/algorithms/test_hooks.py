"""An own algorithm that is wrong at the server is one sentence that says what and where; finished rounds stay."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rebafl import parameters, simulate
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm, Server
from rebafl.base.errors import UserError
from rebafl.runs.events import RoundLine
from rebafl.runs.simulate import NothingLearned
from rebafl.runs.tally import why_nothing_was_learned, why_unchanged
from support.toy import TOY_SETTINGS, TinyNet, lines, round_line, run_toy


@parameters
class Wrong(Algorithm):
    """FedAvg that counts its rounds and does something wrong in the second."""

    name = "wrong"
    deed: str = ""

    def server_state(self, net, task):
        return {"rounds": torch.zeros(())} if self.deed != "server_state: a number" else {"rounds": 0}

    def due(self, server, deed):
        return self.deed == deed and server.state["rounds"] == 1

    def broadcast(self, server):
        if self.due(server, "broadcast: raise"):
            raise ValueError("on\npurpose")
        return [] if self.due(server, "broadcast: a list") else {}

    def aggregate(self, server, uploads, clients):
        after = super().aggregate(server, uploads, clients)
        after = replace(after, state={"rounds": server.state["rounds"] + 1})
        bias, rest = after.weights["head.bias"], {n: t for n, t in after.weights.items() if n != "head.bias"}
        if self.due(server, "aggregate: dtype"):
            return replace(after, weights={**rest, "head.bias": bias.double()})
        if self.due(server, "aggregate: shape"):
            return replace(after, weights={**rest, "head.bias": bias[:2]})
        if self.due(server, "aggregate: names"):
            return replace(after, weights=rest)
        if self.due(server, "aggregate: nothing"):
            return None
        if self.due(server, "aggregate: raise"):
            self.inner()
        return after

    def inner(self):
        return torch.zeros(2) + torch.zeros(3)  # the line that is named

    def refine(self, server, fit):
        if self.deed == "refine: state" and server.state["rounds"] == 2:
            return Server(server.weights)
        if self.deed == "refine: raise" and server.state["rounds"] == 2:
            raise KeyError("head")
        return server

    def evaluated(self, server):
        return {} if self.deed == "evaluated: names" and server.state["rounds"] == 2 else server.weights


@pytest.fixture(autouse=True)
def wrong(monkeypatch):
    monkeypatch.setitem(KINDS, "wrong", Wrong)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("aggregate: dtype", "head.bias is torch.float64 (4,), not torch.float32 (4,)"),
        ("aggregate: shape", "head.bias is torch.float32 (2,), not torch.float32 (4,)"),
        ("aggregate: names", "missing or unknown head.bias"),
        ("aggregate: nothing", "a NoneType where a Server is needed"),
        ("aggregate: raise", "RuntimeError: The size of tensor a"),
        ("refine: state", "other state than it was given: missing or unknown rounds"),
        ("refine: raise", "KeyError: 'head'"),
        ("broadcast: raise", "ValueError: on purpose"),
        ("broadcast: a list", "a list where tensors by name are needed"),
        ("evaluated: names", "other weights than the model has"),
    ],
)
def test_a_wrong_hook_ends_the_run_at_once_and_finished_rounds_stay(tmp_path, toy, deed, reason):
    whole = run_toy(tmp_path / "whole", toy, algorithm="wrong", rounds=1)
    hook = deed.split(":")[0]
    with pytest.raises(UserError, match=rf"The algorithm wrong .*{hook}\(\).*{re.escape(reason)}") as error:
        run_toy(tmp_path / "r", toy, algorithm={"kind": "wrong", "deed": deed})
    assert "\n" not in str(error.value)
    assert lines(tmp_path / "r") == lines(whole.path)


def test_before_the_first_round_too(tmp_path, toy):
    with pytest.raises(UserError, match=r"server_state\(\) a int for 'rounds' where a tensor is needed"):
        run_toy(tmp_path / "r", toy, algorithm={"kind": "wrong", "deed": "server_state: a number"})
    assert not (tmp_path / "r").exists(), "nothing is written"


def test_the_line_that_is_named_is_the_innermost_of_the_own_file(tmp_path, toy):
    text = Path(__file__).read_text()
    number = 1 + text[: text.index("the line that is named")].count("\n")
    with pytest.raises(UserError, match=re.escape(f"aggregate() at {__file__}:{number}")) as error:
        run_toy(tmp_path / "r", toy, algorithm={"kind": "wrong", "deed": "aggregate: raise"})
    assert isinstance(error.value.__cause__, RuntimeError), "from Python, the whole story is still there"


def test_errors_that_are_not_the_algorithms_pass_as_they_are(tmp_path, toy):
    """A listener of the user's may end a run with an exception of its own."""

    def listen(event):
        if isinstance(event, RoundLine):
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        simulate({**TOY_SETTINGS, "algorithm": "wrong"}, tmp_path / "r", data=toy, model=TinyNet, listen=listen)


LINE = round_line(round=3, active=[0, 1], updated=False)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"active": []}, "no upload arrived"),
        ({"lost": [0, 1]}, "no upload arrived"),
        ({"refused": {0: "x", 1: "y"}}, "all 2 uploads were refused"),
        ({"lost": [0], "refused": {1: "y"}}, "the only upload was refused"),
        ({"discarded": "head.bias holds NaN"}, "the new model was discarded: head.bias holds NaN"),
        ({"refused": {0: "x"}, "discarded": "w holds NaN"}, "the new model was discarded: w holds NaN"),
    ],
)
def test_a_round_without_a_new_model_says_why(facts, reason):
    assert why_unchanged(replace(LINE, **facts)) == reason


OWN = """
from rebafl import parameters, simulate
from rebafl.algorithms.interface import Algorithm

@parameters
class Double(Algorithm):
    name = "double"
    def aggregate(self, server, uploads, clients):
        after = super().aggregate(server, uploads, clients)
        for name, tensor in after.weights.items():
            after.weights[name] = tensor.{what}
        return after
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("double()", 2, r"own:Double gave back from aggregate\(\) .* is torch\.float64"),
        ("nonsense()", 2, r"own:Double failed in aggregate\(\) at .*own\.py:11 \(AttributeError"),
        ("mul(float('inf'))", 2, r"Round 1: the new model was discarded: \S+ holds NaN or infinity"),
    ],
)
def test_on_the_command_line(tmp_path, what, code, said):
    (tmp_path / "own.py").write_text(OWN.format(what=what))
    words = "algorithm=own:Double dataset=fashion-mini partition.clients=3 partition.samples=20 training.epochs=1"
    done = subprocess.run(
        [sys.executable, "-m", "rebafl", "run", *words.split(), "workers=1", "rounds=1", "out=run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert re.search(said, done.stderr)
    assert "Traceback" not in done.stderr
    assert "no upload arrived" not in done.stderr


@parameters
class WrongClient(Algorithm):
    """FedAvg whose clients hand back something else than they must."""

    name = "wrong-client"
    deed: str = ""

    def start(self, net, sent, client):
        return None if self.deed == "start: nothing" else super().start(net, sent, client)

    def loss(self, net, batch, context):
        loss = super().loss(net, batch, context)
        return {"loss: number": 1.0, "loss: vector": loss.repeat(2), "loss: detached": loss.detach()}.get(
            self.deed, loss
        )

    def upload(self, net, context, steps):
        upload = super().upload(net, context, steps)
        if self.deed == "upload: dtype":
            return replace(upload, change={name: tensor.double() for name, tensor in upload.change.items()})
        return upload.change if self.deed == "upload: tensors" else upload

    def next_state(self, net, context, upload, steps):
        return {"next_state: dtype": {"n": torch.zeros((), dtype=torch.float64)}, "next_state: list": [1]}.get(
            self.deed, {"n": torch.zeros(())}
        )

    def client_state_template(self, server):
        return {"n": 0.0} if self.deed == "template: number" else {"n": torch.zeros(())}


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("start: nothing", "start() a NoneType where a Context is needed"),
        ("loss: number", "loss() a float where a tensor is needed"),
        ("loss: vector", "loss() a tensor of shape (2,) where one number is needed"),
        ("loss: detached", "loss() a tensor without a gradient"),
        ("upload: dtype", "hidden.weight is torch.float64 (5, 6), not torch.float32 (5, 6)"),
        ("upload: tensors", "upload() a dict where an Upload is needed"),
        ("next_state: dtype", "next state: n is torch.float64 (), not torch.float32 ()"),
        ("next_state: list", "next_state() a list where tensors by name are needed"),
        ("template: number", "client_state_template() a float for 'n' where a tensor is needed"),
    ],
)
def test_what_every_client_does_wrong_ends_the_first_round_and_says_what(tmp_path, toy, monkeypatch, deed, reason):
    monkeypatch.setitem(KINDS, "wrong-client", WrongClient)
    with pytest.raises(UserError, match=re.escape(reason)) as error:
        run_toy(tmp_path / "r", toy, algorithm={"kind": "wrong-client", "deed": deed})
    assert "docs/own-algorithm.md" in str(error.value)
    assert not (tmp_path / "r" / "rounds.jsonl").exists(), "no round was committed"


def test_a_run_without_any_new_model_is_an_error_each_time_it_is_asked_for(tmp_path, toy):
    for _ in range(2):
        with pytest.raises(NothingLearned, match=r"none of 3 rounds .*round 3: all \d uploads were refused, client"):
            run_toy(tmp_path / "r", toy, algorithm="fedavg", training={"lr": 1e30, "batch": 8})
    assert len(lines(tmp_path / "r")) == 3, "what happened stays recorded"


@pytest.mark.parametrize(
    ("rounds", "reason"),
    [
        ([], ""),
        ([{"active": []}], ""),
        ([{"lost": [0, 1]}, {"active": []}], ""),
        ([{"refused": {0: "x"}}, {"updated": True}], ""),
        ([{"refused": {0: "x", 1: "y"}}], "round 3: all 2 uploads were refused, client 0's as x"),
        ([{"discarded": "w holds NaN"}, {"active": []}], "round 3: the new model was discarded: w holds NaN"),
    ],
)
def test_when_a_run_learned_nothing(rounds, reason):
    """Rounds to which nobody came are no reason to call it an error."""
    assert why_nothing_was_learned([replace(LINE, **facts) for facts in rounds]) == reason
