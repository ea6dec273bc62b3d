"""The models beside the paper's: sizes, shapes, all algorithms, resume to the bit, ONNX; and which model fits what."""

import numpy as np
import pytest
import torch
from torch import nn

from rebafl import UserError, export_model, from_arrays, make_settings, model_of_run, simulate
from rebafl.algorithms import KINDS as ALGORITHMS
from rebafl.models.choice import KINDS, ModelChoice, make_net
from support.toy import lines, quiet, same_bits, weights

MODELS = ("resnet20-gn", "resnet18-gn", "mlp", "lr")


def count(net):
    return sum(parameter.numel() for parameter in net.parameters())


def test_they_have_the_published_numbers_of_weights():
    """Of the ResNets' papers: 0.27 million, and 11.2 million without ImageNet's head."""
    assert count(make_net(ModelChoice(kind="resnet20-gn"), (3, 32, 32), 10, 0)) == pytest.approx(0.27e6, rel=0.03)
    net = make_net(ModelChoice(kind="resnet18-gn"), (3, 32, 32), 10, 0)
    assert count(net) == pytest.approx(11.17e6, rel=0.003)
    assert sum(isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) for layer in net.modules()) == 17
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in net.modules())


@pytest.mark.parametrize("side", [8, 28, 224])
@pytest.mark.parametrize("kind", MODELS)
def test_images_of_any_size(kind, side):
    net = make_net(ModelChoice(kind=kind), (1, side, side), 7, 0)
    assert net(torch.zeros(2, 1, side, side)).shape == (2, 7)


def test_an_image_does_not_depend_on_its_batch():
    net = make_net(ModelChoice(kind="resnet20-gn"), (3, 16, 16), 4, 0).train()
    x = torch.linspace(-1, 1, 4 * 3 * 16 * 16).reshape(4, 3, 16, 16)
    assert torch.allclose(net(x)[:1], net(x[:1]), atol=1e-6)


def test_an_mlp_of_any_depth_and_todays_to_the_bit():
    deep = make_net(ModelChoice(kind="mlp", hidden=(32, 16)), (5,), 3, 0)
    widths = [(layer.in_features, layer.out_features) for layer in deep.modules() if isinstance(layer, nn.Linear)]
    assert widths == [(5, 32), (32, 16), (16, 3)]
    assert list(make_net(ModelChoice(kind="mlp"), (5,), 3, 0).state_dict()) == [
        "hidden.weight", "hidden.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    with pytest.raises(UserError, match="model=mlp"):
        make_net(ModelChoice(kind="lr", hidden=(3,)), (5,), 3, 0)
    assert make_settings({"model": {"kind": "mlp"}}).digest == make_settings({"model": "mlp"}).digest


@pytest.mark.parametrize(
    ("kind", "shape", "reason"),
    [
        ("fashion-cnn", (1, 8, 8), "at least 12x12 pixels.*fits: model=resnet20-gn, model=resnet18-gn, model=mlp"),
        ("cifar-cnn", (3, 14, 14), "at least 16x16 pixels.*fits: model=fashion-cnn"),
        ("fashion-cnn", (9,), r"shape \(9,\); what fits: model=mlp, model=lr\."),
        ("resnet18-gn", (9,), "needs images, the data"),
    ],
)
def test_a_model_that_does_not_fit_names_those_that_do(kind, shape, reason):
    with pytest.raises(UserError, match=reason):
        make_net(ModelChoice(kind=kind), shape, 3, 0)


@pytest.mark.parametrize(("kind", "side"), [("fashion-cnn", 12), ("cifar-cnn", 16)])
def test_the_smallest_images_fit(kind, side):
    assert make_net(ModelChoice(kind=kind), (1, side, side), 3, 0)(torch.zeros(1, 1, side, side)).shape == (1, 3)


def pictures():
    random = np.random.default_rng(0)
    y = np.arange(48) % 3
    x = (random.integers(0, 120, (48, 8, 8, 1)) + 60 * y[:, None, None, None]).astype(np.uint8)
    return from_arrays("pictures", {"x_train": x[:36], "y_train": y[:36], "x_test": x[36:], "y_test": y[36:]})


def run(out, kind, algorithm="rebafl", **changes):
    extra = {"samples": 1} if algorithm == "fedavg-ft" else {}
    settings = {
        "rounds": 1, "workers": 1, "model": kind, "algorithm": {"kind": algorithm, **extra}, "participation": "always",
        "partition": {"kind": "pathological", "clients": 2, "samples": 12}, "training": {"epochs": 1, "batch": 12},
    }  # fmt: skip
    return simulate({**settings, **changes}, out, data=pictures(), say=quiet)


@pytest.mark.parametrize("kind", [*MODELS[:1], pytest.param(MODELS[1], marks=pytest.mark.slow), *MODELS[2:]])
def test_every_algorithm_runs_on_it(tmp_path, kind):
    for algorithm in ALGORITHMS:
        if (kind, algorithm) == ("lr", "fedbabu"):
            with pytest.raises(UserError, match="has nothing to train"):
                run(tmp_path / algorithm, kind, algorithm)
            continue
        line = run(tmp_path / algorithm, kind, algorithm).rounds()[-1]
        assert line.updated, algorithm
        assert not line.refused, algorithm


@pytest.mark.parametrize("kind", ["resnet20-gn", "resnet18-gn", "mlp", "lr"])
def test_resumed_to_the_bit(tmp_path, kind):
    run(tmp_path / "a", kind)
    resumed = run(tmp_path / "a", kind, rounds=2, workers=2)
    whole = run(tmp_path / "b", kind, rounds=2)
    assert lines(resumed.path) == lines(whole.path)
    assert same_bits(weights(resumed), weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_onnx_gives_the_same_probabilities(tmp_path, kind):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    model = model_of_run(run(tmp_path / "r", kind).path)
    export_model(model, tmp_path / "out", onnx=True)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    raw = pictures().x_test
    given = raw.permute(0, 3, 1, 2).contiguous().to(torch.float32).numpy()
    (found,) = session.run(None, {"pixels": given})
    assert np.allclose(found, model.logits(raw).softmax(1).numpy(), atol=1e-5)


def test_the_list_of_names():
    assert set(MODELS) < set(KINDS)
