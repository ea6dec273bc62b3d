"""A border between devices: everything crosses it and comes back. On a stand-in: here is no graphics card."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from rebafl import UserError, cli, from_arrays, make_settings
from rebafl.algorithms import KINDS as ALGORITHMS
from rebafl.algorithms.interface import Sent
from rebafl.engines import start_engine
from rebafl.models.kernels import torch_only
from rebafl.runs import device_check
from rebafl.runs.experiment import prepare, work_again
from rebafl.training import device
from rebafl.training.evaluate import score_chunk
from rebafl.training.resources import one_thread
from support.standin import NAME, Elsewhere, Mixed, stand_in
from support.toy import TOY_SETTINGS, TinyNet, quiet, run_toy, same_bits


def pictures():
    random = np.random.default_rng(0)
    y = np.arange(60) % 4
    x = random.integers(0, 256, (60, 12, 12, 1)).astype(np.uint8)
    return from_arrays("pictures", {"x_train": x[:48], "y_train": y[:48], "x_test": x[48:], "y_test": y[48:]})


def prepared(algorithm, **changes):
    extra = {"samples": 1} if algorithm == "fedavg-ft" else {}
    settings = make_settings({
        "partition": {"kind": "pathological", "clients": 3, "samples": 10}, "algorithm": {"kind": algorithm, **extra},
        "training": {"epochs": 2, "batch": 5, "transform": "crop-flip"}, "model": "fashion-cnn", **changes,
    })  # fmt: skip
    experiment = prepare(settings, pictures(), say=quiet)
    server = experiment.first_server()
    return experiment, Sent(server.weights, experiment.settings.algorithm.broadcast(server))


def both(experiment, sent, state):
    """A client's round here, in torch's own operations, and on the stand-in."""
    with torch_only():
        here = experiment.work.train(experiment.work.net(), sent, 0, 1, state)
        there = replace(experiment.work, device=NAME)
        with stand_in():
            return here, there.train(there.net(), sent, 0, 1, state)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_elsewhere_gives_the_same_bits_and_everything_comes_back(algorithm):
    """The second round, too, with the state of the first: nothing that an algorithm makes is left on the other side."""
    experiment, sent = prepared(algorithm)
    state = None
    for _ in range(2):
        (upload, after), (other, other_after) = both(experiment, sent, state)
        for tensor in (*other.change.values(), *other.shared.values(), other.counts, *other_after.values()):
            assert type(tensor) is torch.Tensor
            assert tensor.device.type == "cpu"
        assert same_bits(upload.change, other.change)
        assert same_bits(upload.shared, other.shared)
        assert torch.equal(upload.counts, other.counts)
        assert same_bits(after, other_after)
        state = after


@pytest.mark.parametrize(
    "changes",
    [
        {"protect": {"update_clip": 1.0, "update_noise": 0.5}},
        {"protect": {"clip": 1.0, "noise": 0.5, "counts": "rounded"}},
        {"training": {"epochs": 1, "batch": 5, "optimizer": "adamw", "clip_norm": 0.1}},
        {"model": "resnet20-gn"},
        {"model": "cifar-cnn", "resize": 16},
    ],
)
def test_protections_optimisers_and_models_cross_it_too(changes):
    experiment, sent = prepared("rebafl", **changes)
    (upload, _), (other, _) = both(experiment, sent, None)
    for here, there in ((upload.change, other.change), (upload.shared, other.shared)):
        assert here.keys() == there.keys()
        for name in here:  # a ResNet's last bits depend on the order of its tensors in memory
            assert torch.allclose(here[name], there[name], rtol=1e-4, atol=1e-6), name


def test_a_score_elsewhere_is_the_same():
    experiment, _ = prepared("fedavg")
    work = experiment.work
    here = score_chunk(work.net(), work.data, 0)
    with stand_in():
        net = replace(work, device=NAME).net()
        assert isinstance(next(net.parameters()), Elsewhere)
        assert score_chunk(net, work.data, 0) == here


def test_the_stand_in_notices_what_a_graphics_card_would():
    with stand_in():
        there = torch.ones(3).to(NAME)
        with pytest.raises(Mixed):
            there + torch.ones(3)
        assert torch.equal((there + 1).to("cpu"), torch.full((3,), 2.0))
        assert torch.equal(there[torch.tensor([0])].to("cpu"), torch.ones(1)), "indices may come from here"
        with torch.device(NAME):
            assert isinstance(torch.arange(3), Elsewhere)


def test_the_check_compares_a_device_with_the_processor():
    (same,) = device_check.check_device("cpu", [("mlp", "fedavg")])
    assert (same.apart, same.accuracy) == (0.0, 0.0)
    assert same.good
    assert not replace(same, apart=2 * device_check.FAR).good


def test_the_command_prints_what_to_report_and_fails_if_they_differ(monkeypatch):
    far = device_check.Parity("mlp", "fedavg", 0.5, -3.0, 0.1, 0.1)
    runner = CliRunner()
    for parity, code, word in ((replace(far, apart=1e-6), 0, "All changes"), (far, 1, "NOT all changes")):
        monkeypatch.setattr("rebafl.cli.device.check_device", lambda _, parity=parity: iter([parity]))
        done = runner.invoke(cli.app, ["device-check", "cpu"])
        assert done.exit_code == code
        assert word in " ".join(done.output.split())
        assert f"torch {torch.__version__}" in " ".join(done.output.split())
    with pytest.raises(UserError, match="there are cpu, cuda"):
        runner.invoke(cli.app, ["device-check", "gpu"], catch_exceptions=False)


def test_words_for_devices():
    for word in ("cpu", "cuda", "cuda:1", "mps", "auto"):
        assert make_settings({"device": word}).device == word
    with pytest.raises(UserError, match="there are cpu, cuda, cuda:N, mps and auto"):
        make_settings({"device": "gpu"})
    assert (
        make_settings({"device": "cpu"}).digest == make_settings({}).digest != make_settings({"device": "cuda"}).digest
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_one_sentence(tmp_path, toy):
    with pytest.raises(UserError, match="sees 0 CUDA devices here"):
        run_toy(tmp_path / "r", toy, device="cuda")
    assert device.resolve("auto") in ("cpu", "mps")


def test_auto_is_recorded_and_another_device_has_to_be_accepted(tmp_path, toy, monkeypatch):
    record = run_toy(tmp_path / "r", toy, device="auto", rounds=1)
    assert record.environment()["device"] == device.resolve("auto")
    monkeypatch.setattr("rebafl.runs.opening.described", lambda device: "cuda (another)")
    with pytest.raises(UserError, match=r"device, '\w+' there and 'cuda \(another\)' here"):
        run_toy(tmp_path / "r", toy, device="auto", rounds=2)
    assert "device" not in run_toy(tmp_path / "plain", toy, rounds=1).environment()


@pytest.mark.slow
def test_fresh_processes_instead_of_forked_ones_give_the_same_bits():
    """As on a graphics card, but each fresh process computes here."""
    words = {
        "dataset": "fashion-mini",
        "model": "mlp",
        "partition": {"kind": "iid", "clients": 60},
        "training": {"epochs": 1},
        "algorithm": "fedavg",
    }
    experiment = prepare(make_settings(words), say=quiet)
    server = experiment.first_server()
    expected = start_engine(experiment.work, "local", 1)
    with one_thread():
        alike = {o.client: o.upload for o in expected.train(1, Sent(server.weights), [0, 1], lambda client: None)}
    far = replace(experiment.work, device="cuda")  # the process itself never computes there
    engine = start_engine(far, "local", 2)
    try:
        for outcome in engine.train(1, Sent(server.weights), [0, 1], lambda client: None):
            assert outcome.upload, outcome.failure
            assert same_bits(outcome.upload.change, alike[outcome.client].change)
    finally:
        engine.close()


def test_what_cannot_be_handed_to_a_fresh_process_or_to_ray_is_refused(toy):
    experiment = prepare(make_settings(TOY_SETTINGS), toy, TinyNet, quiet)
    far = replace(experiment.work, device="cuda")
    assert far.again is None
    with pytest.raises(UserError, match="use workers=1, or name them"):
        start_engine(far, "local", 2)
    with pytest.raises(UserError, match="use engine=local"):
        start_engine(far, "ray", 2)


def test_work_made_again_is_the_same():
    settings = make_settings(
        {"dataset": "fashion-mini", "model": "mlp", "validation": 0.1, "partition": {"samples": 50}}
    )
    experiment, again = prepare(settings, say=quiet), work_again(settings.plain())
    assert np.array_equal(again.split.indices(3), experiment.work.split.indices(3))
    assert torch.equal(again.data.validation, experiment.work.data.validation)
    assert again.data.digest == experiment.work.data.digest


def test_own_code_makes_its_tensors_there():
    class Drawing(nn.Module):
        def forward(self, x):
            return x + torch.arange(3.0)

    with stand_in(), device.computing_on(NAME):
        assert isinstance(Drawing()(torch.zeros(3)), Elsewhere)
