"""The benchmark: all contenders do the same work, and what is measured makes sense. No absolute times here."""

import importlib.util
import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from rebafl import cli
from rebafl.algorithms.interface import Sent
from rebafl.base.errors import UserError
from rebafl.bench import scale
from rebafl.bench.peak import flops_per_sample
from rebafl.bench.race import PEERS, Contender, contenders, measure_methods, race, ratio_to
from rebafl.bench.stopwatch import in_turns, measure
from rebafl.bench.workload import SMALL, write
from rebafl.models.networks import FashionCNN
from rebafl.report import figures, speed
from rebafl.report.markdown import markdown_table
from rebafl.runs.experiment import prepare


@pytest.fixture(scope="module")
def textbook():
    spec = importlib.util.spec_from_file_location("textbook", PEERS / "textbook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_peer_that_follows_the_folder_trains_the_same_model(tmp_path, textbook):
    """Textbook model and loop on the written-out workload, beside a client's round here: rounding apart, the same."""
    experiment = prepare(write(SMALL, tmp_path, processes=2))
    w = textbook.Workload(tmp_path)
    for round, client in ((1, 0), (2, 3)):
        net = textbook.Net()
        net.load_state_dict(w.initial())
        textbook.train(net, w, round, client)
        sent = Sent(experiment.first_server().weights)
        upload, _ = experiment.work.train(experiment.work.make_net(), sent, client, round, None)
        for name, theirs in net.state_dict().items():
            change = theirs - w.initial()[name]
            assert change.abs().max() > 1e-4
            assert torch.allclose(change, upload.change[name], atol=1e-5)


def test_the_peers_mean_and_accuracy_by_hand(textbook):
    mean = textbook.average([{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}])
    assert mean["w"].tolist() == [2.0, 4.0]
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert textbook.evaluate(torch.nn.Identity(), (logits, torch.tensor([0, 1, 1, 1]))) == 50.0


def test_operations_are_counted_right():
    """Forward: two convolutions and two linear layers; backward: twice that, but for the images' own gradient."""
    first, second = 24 * 24 * 16 * 25, 10 * 10 * 32 * 16 * 25
    linear = 800 * 128 + 128 * 10
    forward, whole = flops_per_sample(FashionCNN((1, 28, 28), 10), torch.zeros(2, 1, 28, 28))
    assert forward == 2 * (first + second + linear)
    assert whole == 2 * (2 * first + 3 * second + 3 * linear)


@pytest.mark.slow
def test_a_short_race(tmp_path):
    """Who did the work agrees on the result, nobody is absurdly fast or slow, who is absent or fails is named."""
    racers = [racer for racer in contenders(tmp_path) if racer.name != "plain-sequential"]
    racers.append(Contender("broken", "Broken", (sys.executable, "-c", "raise SystemExit('no luck')")))
    found = json.loads(json.dumps(race(racers, SMALL, repeats=1, folder=tmp_path / "w")))
    assert found["accuracies_agree"]
    rows = {row["name"]: row for row in found["contenders"]}
    absent = {name: row["absent"] for name, row in rows.items() if row.get("absent")}
    assert list(absent) == ["flower", "pfl", "fedlab", "broken"]
    assert "no luck" in absent["broken"]
    assert rows["rebafl"]["ours_to_theirs"] == 1.0
    assert 0.02 < rows["plain-processes"]["ours_to_theirs"] < 10
    turns = found["rebafl_to_fedavg"]
    assert 0.3 < turns["spread"][0] <= turns["ratio"] <= turns["spread"][1] < 10
    assert {name: len(seconds) for name, seconds in turns["seconds"].items()} == {"fedavg": 3, "rebafl": 3}
    assert all(0 < row["peak_share"] < 1.2 and row["memory_mb"] > 50 for row in rows.values() if "seconds" in row)
    texts = [markdown_table(*table) for table in speed.tables(found)]
    assert "| FedLab | absent (not installed) |" in texts[0]
    figures.draw_race(found, tmp_path / "race.png")
    assert (tmp_path / "race.png").stat().st_size > 10_000


@pytest.mark.slow
def test_methods_are_measured_beside_fedavg(tmp_path, monkeypatch):
    monkeypatch.setattr("rebafl.bench.race.ALGORITHMS", {"fedavg": None, "moon": None})
    steps = []
    found = measure_methods(tmp_path, quick=True, rounds=2, on_step=lambda done, total, name: steps.append(name))
    assert steps == ["fedavg", "moon", "moon", "fedavg", "fedavg", "moon"]
    assert found["to_fedavg"]["fedavg"] == {"ratio": 1.0, "spread": [1.0, 1.0]}
    assert {name: len(seconds) for name, seconds in found["seconds"].items()} == {"fedavg": 2, "moon": 2}
    [(_, rows)] = speed.tables(found)
    assert [row[0] for row in rows] == sorted(found["to_fedavg"], key=lambda name: found["to_fedavg"][name]["ratio"])


def test_a_ratio_is_taken_round_by_round():
    """Not of the sums: a busy minute affects one round of each."""
    assert ratio_to([4.0, 30.0, 6.0], [2.0, 10.0, 2.0]) == {"ratio": 3.0, "spread": [2.0, 3.0]}


@pytest.mark.slow
def test_a_point_of_the_scale_measurement(tmp_path):
    timing = scale.point(tmp_path, clients=3_000, active=4, rounds=2, width=1_280)
    assert len(timing.rounds) == 2
    assert timing.start > 0


def test_in_turns_only_one_works_at_a_time(tmp_path):
    """Each waits for its line; the order turns round; one that ends early is named with its last words."""
    program = (
        "import sys, json, time; out = open(sys.argv[1], 'a')\n"
        "print(json.dumps({'version': '1'}), flush=True)\n"
        "for number in range(int(sys.argv[2])):\n"
        "    sys.stdin.readline(); print(sys.argv[3], file=out, flush=True); time.sleep(0.02)\n"
        "    print(json.dumps({'round': number}), flush=True)\n"
        "sys.exit('tired')"
    )
    order = tmp_path / "order"
    commands = {name: [sys.executable, "-c", program, str(order), "3", name] for name in "ab"}
    seconds = in_turns(commands, 3, tmp_path / "log")
    assert order.read_text().split() == ["a", "b", "b", "a", "a", "b"]
    assert all(len(each) == 3 and min(each) >= 0.02 for each in seconds.values())
    with pytest.raises(UserError, match="too early: tired"):
        in_turns({"a": [*commands["a"][:-2], "1", "a"]}, 2, tmp_path / "log")


def test_a_contender_that_fails_is_named_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"]
    with pytest.raises(UserError, match=r"exit code 3\): out of luck"):
        measure(command, tmp_path / "log")
    with pytest.raises(UserError, match="out of luck"):
        measure([*command[:2], f"print('no JSON', flush=True); {command[2]}"], tmp_path / "log")


def test_an_unknown_contender_is_named(tmp_path):
    error = CliRunner().invoke(cli.app, ["bench", "--quick", "--only", "flwr", "--out", str(tmp_path)]).exception
    assert isinstance(error, UserError)
    assert "there is no contender 'flwr'; there are rebafl, " in str(error)
