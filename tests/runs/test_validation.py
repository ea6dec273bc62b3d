"""A validation part is nobody's, a run's best round is chosen on it, and both models are kept and can be exported."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rebafl import Settings, UserError, cli, make_settings, model_of_run
from rebafl.population.given import File
from rebafl.population.holdout import held_out, split_rest
from rebafl.population.partition import Iid, Pathological
from rebafl.runs.early_stop import EarlyStop
from rebafl.runs.experiment import prepare
from rebafl.runs.opening import roll_back
from rebafl.runs.record import Record
from rebafl.training.evaluate import score_chunk
from support.toy import TOY_SETTINGS, TinyNet, lines, quiet, run_toy, same_bits, weights

LABELS = np.repeat(np.arange(4), 50)


def test_the_part_has_its_share_of_each_class_and_follows_from_the_seed():
    held = held_out(LABELS, 4, 0.1, seed=3)
    assert np.bincount(LABELS[held]).tolist() == [5, 5, 5, 5]
    assert len(np.unique(held)) == 20
    assert np.array_equal(held, held_out(LABELS, 4, 0.1, seed=3))
    assert not np.array_equal(held, held_out(LABELS, 4, 0.1, seed=4))


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_a_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(UserError, match="take another share"):
        held_out(LABELS, 4, share, seed=0)


def test_no_client_holds_any_of_it_and_clients_hold_as_many_as_ever(tmp_path):
    held = held_out(LABELS, 4, 0.2, seed=0)
    drawn = split_rest(Pathological(clients=9, samples=20), LABELS, 4, 0, held)
    dealt = split_rest(Iid(clients=4), LABELS, 4, 0, held)
    for split in (drawn, dealt):
        for client in range(split.clients):
            assert not set(split.indices(client)) & set(held)
            assert split.counts(client).sum() == len(split.indices(client))
    assert [len(drawn.indices(client)) for client in range(9)] == [20] * 9
    assert sum(len(dealt.indices(client)) for client in range(4)) == len(LABELS) - len(held)


def test_positions_in_a_file_mean_all_of_the_training_data(tmp_path):
    """Else a saved partition would silently name other samples as soon as a part is held out."""
    path = tmp_path / "p.json"
    path.write_text(json.dumps([list(range(100)), list(range(100, 200))]))
    held = held_out(LABELS, 4, 0.1, seed=0)
    split = split_rest(File(clients=2, path=str(path)), LABELS, 4, 0, held)
    assert split.indices(1).tolist() == [i for i in range(100, 200) if i not in held]
    path.write_text(json.dumps([list(range(100)), [int(held[0])]]))
    with pytest.raises(UserError, match="leaves no sample to client 1"):
        split_rest(File(clients=2, path=str(path)), LABELS, 4, 0, held).indices(1)


def test_the_servers_own_samples_are_none_of_it(toy):
    settings = replace(toy_settings(validation=0.5, algorithm={"kind": "fedavg-ft", "samples": 3}), seed=2)
    experiment = prepare(settings, toy, TinyNet, quiet)
    held = experiment.work.data.validation
    assert len(held) == 100
    assert not set(experiment.server_index) & set(held.tolist())


def toy_settings(**changes) -> Settings:
    return make_settings({**TOY_SETTINGS, **changes})


def test_without_it_nothing_changes(tmp_path, toy):
    plain = run_toy(tmp_path / "a", toy)
    assert "validation_accuracy" not in lines(plain.path)[0]
    assert "best" not in json.loads((plain.checkpoint / "manifest.json").read_text())
    assert toy_settings(validation=0.0, stop="plateau").digest == toy_settings().digest
    assert toy_settings(validation=0.1).digest != toy_settings().digest


def test_what_is_recorded_is_the_score_on_that_part_with_any_number_of_workers(tmp_path, toy):
    record = run_toy(tmp_path / "a", toy, validation=0.2)
    experiment = prepare(toy_settings(validation=0.2), toy, TinyNet, quiet)
    model = model_of_run(record.path, TinyNet)
    score = score_chunk(model.net, experiment.work.data, 0, "validation")
    last = record.rounds()[-1]
    assert sum(score.total) == 40
    assert (last.validation_accuracy, last.validation_loss) == (score.accuracy, score.mean_loss)
    held = experiment.work.data.validation
    assert score.correct == tuple(
        int(((model.logits(toy.x_train[held]).argmax(1) == c) & (toy.y_train[held] == c)).sum()) for c in range(4)
    )
    assert lines(run_toy(tmp_path / "b", toy, validation=0.2, workers=2).path) == lines(record.path)


@pytest.mark.parametrize("algorithm", ["rebafl", "counting"])
@pytest.mark.usefixtures("counting")
def test_best_and_last_model_are_kept_through_resumes_and_rollback(tmp_path, toy, algorithm):
    """At each round: the best so far is that of the run that ended at its best round."""
    changes = {"validation": 0.2, "algorithm": algorithm, "training": {"epochs": 3, "batch": 4, "lr": 0.3}}
    for rounds in (1, 2, 3, 7, 12):
        record = run_toy(tmp_path / "r", toy, rounds=rounds, **changes)
    accuracies = [line.validation_accuracy for line in record.rounds()]
    best, server = record.best_server()
    assert best == 1 + accuracies.index(max(accuracies)) != 12, "a best round that is the last would prove nothing"
    short = run_toy(tmp_path / "short", toy, rounds=best, **changes)
    assert same_bits(server["weights"], weights(short))
    assert same_bits(model_of_run(record.path, TinyNet, best=True).net.state_dict(), weights(short))
    assert same_bits(model_of_run(record.path, TinyNet).net.state_dict(), weights(record))
    files = {path.name for path in record.checkpoint.iterdir()}
    whole = run_toy(tmp_path / "whole", toy, rounds=12, **changes)
    assert {path.name for path in whole.checkpoint.iterdir()} == files
    for point in record.points()[::-1]:
        roll_back(record, point)
        found, server = Record(record.path).best_server()
        assert found == 1 + accuracies.index(max(accuracies[:point]))
        assert torch.isfinite(server["weights"]["head.bias"]).all()
    assert lines(run_toy(record.path, toy, rounds=12, **changes).path) == lines(whole.path)


def test_a_damaged_best_model_is_noticed(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3, validation=0.2)
    path = record.checkpoint / f"server-{record.best_server()[0]}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path.name} is damaged \(its digest is another"):
        record.best_server()


def test_a_plateau_ends_the_run_where_it_would_have_been_and_never_goes_on(tmp_path, toy):
    changes = {"validation": 0.2, "training": {"epochs": 3, "batch": 4, "lr": 0.3}}
    whole = run_toy(tmp_path / "whole", toy, rounds=30, **changes)
    accuracies = [line.validation_accuracy for line in whole.rounds()]
    end = next(r for r in range(1, 31) if r - 1 - accuracies[:r].index(max(accuracies[:r])) >= 3)
    assert end < 30
    early = {**changes, "stop": {"kind": "plateau", "patience": 3}}
    run_toy(tmp_path / "early", toy, rounds=2, **early)
    for _ in range(2):  # ended is ended, however often it is asked again
        record = run_toy(tmp_path / "early", toy, rounds=30, **early)
        assert lines(record.path) == lines(whole.path)[:end]
    resumed = run_toy(tmp_path / "early", toy, rounds=30, **{**early, "stop": "never"})
    assert lines(resumed.path) == lines(whole.path)


def test_patience_counts_rounds_since_the_first_best():
    stop = EarlyStop(kind="plateau", patience=2)
    assert not stop.is_over([])
    assert not stop.is_over([50.0, 50.0])
    assert stop.is_over([50.0, 50.0, 50.0])
    assert not stop.is_over([50.0, 49.0, 50.5])
    assert not EarlyStop(patience=1).is_over([50.0] * 9)


def test_a_plateau_needs_a_validation_part(tmp_path, toy):
    with pytest.raises(UserError, match=r"add validation=0\.1"):
        run_toy(tmp_path / "r", toy, stop="plateau")


def test_export_best_and_the_messages(tmp_path):
    words = ["dataset=fashion-mini", "partition.samples=40", "partition.clients=3", "training.epochs=1", "model=mlp",
             "rounds=3", "workers=1"]  # fmt: skip
    runner = CliRunner()
    done = runner.invoke(
        cli.app, ["run", *words, "validation=0.1", "stop=plateau", "stop.patience=1", f"out={tmp_path / 'r'}"]
    )
    assert done.exit_code == 0, done.output
    assert "Best on the validation part: round" in done.output
    assert runner.invoke(cli.app, ["export", str(tmp_path / "r"), "--best"]).exit_code == 0
    assert (tmp_path / "r" / "export-best" / "model.safetensors").exists()
    runner.invoke(cli.app, ["run", *words, f"out={tmp_path / 'plain'}", "-q"])
    refused = runner.invoke(cli.app, ["export", str(tmp_path / "plain"), "--best"])
    assert isinstance(refused.exception, UserError)
    assert "validation=0.1" in str(refused.exception)
