"""The contract, the paper's two networks, and how other modules are made to fit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import TinyNet, make_toy, run_toy, same_bits, weights
from rebafl.base.errors import UserError
from rebafl.models.choice import ModelChoice, make_net
from rebafl.models.contract import extract, load_weights, part_of, weights_of
from rebafl.models.networks import CifarCNN, FashionCNN


def textbook(net, x):
    """Activation before pooling, channels first in memory: as papers write it."""
    for conv in [net.conv1, net.conv2, getattr(net, "conv3", None)]:
        if conv is not None:
            x = F.max_pool2d(F.leaky_relu(F.conv2d(x, conv.weight.contiguous(), conv.bias, padding=conv.padding)), 2)
    h = net.hidden(x.flatten(1))
    return F.leaky_relu(h) if isinstance(net, FashionCNN) else h


@pytest.mark.parametrize(
    ("kind", "shape", "cls", "flat", "parameters"),
    [
        ("fashion-cnn", (1, 28, 28), FashionCNN, 800, 416 + 12832 + 102528 + 1290),
        ("cifar-cnn", (3, 32, 32), CifarCNN, 576, 1216 + 12832 + 18496 + 73856 + 1280),
    ],
)
def test_the_papers_networks(kind, shape, cls, flat, parameters):
    net = make_net(ModelChoice(kind=kind), shape, 10, seed=0)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    features = net.features(x)
    assert isinstance(net, cls)
    assert net.flat == net.hidden.in_features == flat
    assert features.shape == (3, 128)
    assert torch.allclose(features, textbook(net, x), atol=1e-5)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert (net.head.bias is None) == (cls is CifarCNN)
    assert net.conv2.weight.is_contiguous(memory_format=torch.channels_last)


def test_initial_weights_follow_from_the_seed_alone():
    make = [weights_of(make_net(ModelChoice(), (1, 28, 28), 10, seed)) for seed in (0, 0, 1)]
    assert same_bits(make[0], make[1])
    assert not same_bits(make[0], make[2])


def test_other_image_sizes_work_and_impossible_ones_are_refused():
    assert make_net(ModelChoice(), (3, 40, 64), 7, 0)(torch.zeros(2, 3, 40, 64)).shape == (2, 7)
    with pytest.raises(UserError, match="does not fit"):
        make_net(ModelChoice(), (1, 5, 5), 10, 0)
    with pytest.raises(UserError, match="does not fit"):
        make_net(ModelChoice(), (20,), 10, 0)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
        self.out = nn.ModuleDict({"fc": nn.Linear(5, 4)})

    def forward(self, x):
        return self.out["fc"](self.body(x))


class WithMoreAfterwards(Plain):
    def forward(self, x):
        return super().forward(x).log_softmax(1)


def test_a_plain_module_is_adapted_by_the_name_of_its_last_layer():
    net = make_net(ModelChoice(kind="python", last="out.fc"), (6,), 4, 0, Plain)
    x = torch.randn(3, 6)
    assert net.features(x).shape == (3, 5)
    assert torch.equal(net.head(net.features(x)), net(x))
    assert {part_of(name) for name in net.state_dict()} == {"features", "head"}


@pytest.mark.parametrize(
    ("factory", "last", "reason"),
    [
        (Plain, "", "model.last"),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh()), "1", "not a linear layer"),
        (Plain, "nope", "no layer 'nope'; linear ones: body.0, out.fc"),
        (WithMoreAfterwards, "out.fc", "does more than"),
        (lambda: nn.Linear(6, 3), "", "features"),
        (lambda: 5, "", "not a torch module"),
        (lambda: TinyNet(classes=3), "", "4 classes"),
        (lambda: TinyNet((7,)), "", "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(factory, last, reason):
    with pytest.raises(UserError) as error:
        make_net(ModelChoice(kind="python", last=last), (6,), 4, 0, factory)
    assert reason in str(error.value)


def test_features_and_head_are_enough(tmp_path):
    class NoForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 4)

        def features(self, x):
            return x

    net = make_net(ModelChoice(kind="python"), (6,), 4, 0, NoForward)
    x = torch.randn(2, 6)
    assert torch.equal(net(x), net.head(x))
    assert run_toy(tmp_path / "r", make_toy(), NoForward, workers=2).round == 3


@pytest.mark.parametrize("kind", ["resnet", "nowhere:Net", "math:pi", "math:nothing"])
def test_unknown_models_are_named(kind):
    with pytest.raises(UserError, match=kind):
        make_net(ModelChoice(kind=kind), (6,), 4, 0)


def test_loading_copies_values_and_keeps_the_memory_layout():
    net = make_net(ModelChoice(), (1, 28, 28), 10, 0)
    strides = net.conv2.weight.stride()
    load_weights(net, {name: tensor.contiguous() + 1 for name, tensor in weights_of(net).items()})
    assert net.conv2.weight.stride() == strides


class Normed(TinyNet):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.3)

    def features(self, x):
        return self.drop(super().features(self.norm(x)))


def test_batch_norm_statistics_are_averaged_and_used(tmp_path):
    """The policy: running means, variances and counters travel and are averaged by samples, like weights."""
    toy = make_toy()
    always = {"participation": {"kind": "always"}, "partition": {"kind": "iid", "clients": 2}}
    record = run_toy(tmp_path / "a", toy, Normed, rounds=1, algorithm="fedavg", **always)
    merged = weights(record)
    assert merged["norm.num_batches_tracked"].item() == 26  # 2 epochs of 13 batches, on both clients
    inputs = toy.inputs(toy.x_train)
    assert torch.allclose(merged["norm.running_mean"], inputs.mean(0), atol=0.35)
    assert merged["norm.running_mean"].abs().sum() > 0
    frozen = Normed()
    load_weights(frozen, merged)
    frozen.eval()
    by_hand = (frozen(toy.inputs(toy.x_test)).argmax(1) == toy.y_test).float().mean().item() * 100
    assert record.rounds()[-1]["accuracy"] == pytest.approx(by_hand)


def test_layers_that_draw_random_numbers_repeat(tmp_path):
    toy = make_toy()
    runs = [run_toy(tmp_path / str(k), toy, Normed, workers=k) for k in (1, 2)]
    torch.rand(5)  # the global stream must not matter
    assert same_bits(weights(runs[0]), weights(runs[1]))


def test_extract_runs_without_gradients_and_puts_the_mode_back():
    net = make_net(ModelChoice(kind="python"), (6,), 4, 0, Normed).train()
    before = net.norm.running_mean.clone()
    assert not extract(net, torch.randn(7, 6)).requires_grad
    assert net.training
    assert torch.equal(net.norm.running_mean, before)
