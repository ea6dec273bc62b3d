"""How often a model is scored, and how good it is for each client."""

from dataclasses import replace

import numpy as np
import pytest

import rebafl.runs.rounds as rounds_module
from rebafl import UserError, make_settings
from rebafl.engines import start_engine
from rebafl.report.comparison import comparison_table, further_tables
from rebafl.report.summary import group_runs, read_run
from rebafl.runs import measures
from rebafl.runs.aggregation import next_server
from rebafl.runs.experiment import prepare
from rebafl.runs.record import Record
from rebafl.runs.rounds import Checks, Run
from rebafl.runs.scores import over_clients
from rebafl.training.personal import accuracy_for, tuned_recall
from support.toy import TinyNet, lines, run_toy, same_bits, weights


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


SCORES = ("accuracy", "loss", "recall", "scored")


def test_rounds_between_repeat_the_last_scores_and_train_the_same(tmp_path, toy):
    plain = run_toy(tmp_path / "plain", toy, rounds=7)
    some = run_toy(tmp_path / "some", toy, rounds=7, evaluate={"every": 3})
    assert same_bits(weights(plain), weights(some))
    every, third = lines(plain.path), lines(some.path)
    assert without(every, *SCORES) == without(third, *SCORES)
    assert [row.get("scored") for row in third] == [None, 1, None, 3, 3, None, 6]
    measured = [1, 1, 3, 3, 3, 6, 6]
    assert [row["accuracy"] for row in third] == [every[number - 1]["accuracy"] for number in measured]
    assert [row["loss"] for row in third] == [every[number - 1]["loss"] for number in measured]


def test_a_run_that_is_resumed_between_two_scores_has_the_same_record(tmp_path, toy):
    for rounds in (2, 4, 7):
        run_toy(tmp_path / "parts", toy, rounds=rounds, evaluate={"every": 3})
    run_toy(tmp_path / "whole", toy, rounds=7, evaluate={"every": 3})
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


def test_a_model_that_is_not_finite_is_noticed_in_a_round_that_is_not_scored(tmp_path, toy, monkeypatch):
    def spoilt(experiment, number, server, *others):
        made, hidden, why = next_server(experiment, number, server, *others)
        broken = {name: tensor * float("nan") for name, tensor in made.weights.items()}
        return (replace(made, weights=broken) if number == 2 else made), hidden, why

    monkeypatch.setattr(rounds_module, "next_server", spoilt)
    run_toy(tmp_path / "r", toy, rounds=3, evaluate={"every": 3})
    rows = lines(tmp_path / "r")
    assert [row["updated"] for row in rows] == [True, False, True]
    assert "NaN or infinity" in rows[1]["discarded"]


def test_measures_are_those_of_scored_rounds(tmp_path, toy):
    run = read_run(run_toy(tmp_path / "r", toy, rounds=7, evaluate={"every": 3}).path)
    own = [run.accuracy[number - 1] for number in (1, 3, 6)]
    assert run.scored == own
    assert run.summary()["last10_mean"] == pytest.approx(np.mean(own))
    assert run.measure("second_half") == pytest.approx(np.mean(own[1:]))
    assert "last 3" in [str(column.header) for column in comparison_table(group_runs([run])).columns]


def test_settings_are_checked():
    with pytest.raises(UserError, match=r"clients_every = 10 is no multiple of every = 3"):
        make_settings({"evaluate": {"every": 3, "clients": "global"}})
    assert make_settings({"evaluate": {"every": 1}}).digest == make_settings({}).digest
    assert make_settings({"evaluate": {"every": 2}}).digest != make_settings({}).digest


def test_accuracy_for_a_client_by_hand():
    assert accuracy_for(np.array([30, 10, 0]), [80.0, 40.0, 0.0]) == 70.0
    assert accuracy_for(np.array([30, 10, 0]), [None, 40.0, 0.0]) == 40.0
    assert accuracy_for(np.array([0, 0, 5]), [1.0, 2.0, None]) is None
    found = measures.over_clients([90.0, 50.0, 70.0, 50.0])
    assert found == {"mean": 65.0, "worst_tenth": 50.0, "spread": pytest.approx(16.583, abs=0.001)}
    assert measures.over_clients([float(n) for n in range(1, 21)])["worst_tenth"] == 1.5
    assert measures.over_clients([float(n) for n in range(1, 12)])["worst_tenth"] == 1.5, "of eleven, two"


def client_run(path, toy, clients, **settings):
    evaluate = {"clients": clients, "clients_every": 2, "epochs": 3}
    return run_toy(path, toy, rounds=4, evaluate=evaluate, **settings)


def test_scores_over_clients_are_those_of_the_recall(tmp_path, toy):
    plain, record = run_toy(tmp_path / "plain", toy, rounds=4), client_run(tmp_path / "r", toy, "global")
    assert without(lines(record.path), "over_clients") == lines(plain.path)
    rows = lines(record.path)
    assert ["over_clients" in row for row in rows] == [False, True, False, True]
    split = prepare(make_settings(record.config()), toy, TinyNet).work.split
    by_hand = []
    for client in range(split.clients):
        labels = toy.y_train[split.indices(client)].tolist()
        by_hand.append(np.mean([rows[3]["recall"][label] for label in labels]))
    assert rows[3]["over_clients"]["mean"] == pytest.approx(np.mean(by_hand))
    assert rows[3]["over_clients"]["worst_tenth"] == pytest.approx(min(by_hand))
    assert rows[3]["over_clients"]["spread"] == pytest.approx(np.std(by_hand))


def test_fine_tuning_helps_clients_and_changes_no_result(tmp_path, toy):
    plain, record = run_toy(tmp_path / "plain", toy, rounds=4), client_run(tmp_path / "r", toy, "tuned")
    assert same_bits(weights(plain), weights(record))
    assert without(lines(record.path), "over_clients") == lines(plain.path)
    found = lines(record.path)[1]["over_clients"]
    assert found["tuned_mean"] > found["mean"]
    assert found["tuned_worst_tenth"] <= found["tuned_mean"]
    run = read_run(record.path)
    assert run.summary()["clients_tuned_mean"] == lines(record.path)[3]["over_clients"]["tuned_mean"]
    (table,) = further_tables(group_runs([run]), None, "last")
    assert {"clients'\nmean", "tuned\nworst 10%"} <= {str(column.header) for column in table.columns}
    assert Record(record.path).rounds()[1].over_clients == found


def test_any_number_of_workers_gives_the_same_and_no_client_touches_another(toy, tmp_path):
    experiment = prepare(make_settings({"partition": {"clients": 4, "samples": 20}}), toy, TinyNet)
    server = experiment.first_server().weights
    found = []
    for workers in (1, 2):
        engine = start_engine(experiment.work, "local", workers)
        found.append({client: list(recall) for client, recall in engine.tune(server, 5, range(4), 2)})
        engine.close()
    assert found[0] == found[1]
    net = experiment.work.make_net()
    assert list(tuned_recall(experiment.work, net, server, 2, 5, 2)) == found[0][2], "alone as after others"
    held = np.flatnonzero(experiment.work.split.counts(2))
    assert all((value is not None) == (label in held) for label, value in enumerate(found[0][2]))


def test_clients_without_a_tested_class_are_left_out(toy):
    split = prepare(make_settings({"partition": {"clients": 4, "samples": 20}}), toy, TinyNet).work.split
    known, unknown = [80.0] * split.classes, [None] * split.classes
    assert over_clients(split, {1: known, 2: unknown}) == {"mean": 80.0, "worst_tenth": 80.0, "spread": 0.0}
    assert over_clients(split, {}) == {}


def test_clients_with_models_of_their_own_are_scored_by_these(tmp_path, toy):
    record = client_run(tmp_path / "r", toy, "tuned", algorithm="alone", participation="always")
    found = lines(record.path)[3]["over_clients"]
    assert set(found) == {"mean", "worst_tenth", "spread"}, "there is no model for all that could be fine-tuned"
    assert found["mean"] > lines(record.path)[3]["accuracy"], "a client's own classes are easier than all classes"


def test_a_federation_has_no_clients_data(tmp_path, toy):
    record = client_run(tmp_path / "r", toy, "global")
    experiment = prepare(make_settings(record.config()), toy, TinyNet)
    engine = start_engine(experiment.work, "local", 1)
    with pytest.raises(UserError, match=r"evaluate\.clients needs a simulation"):
        Run(experiment, record, engine, Checks(samples=10), experiment.first_server(), knows_split=False)
