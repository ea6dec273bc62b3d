"""A model is chosen by name or given as a module, and what does not fit is refused."""

import pytest
import torch
from torch import nn

from rebafl.base.errors import UserError
from rebafl.models.choice import ModelChoice, make_net
from rebafl.models.contract import part_of, weights_of
from support.toy import TinyNet, make_toy, run_toy, same_bits


def test_initial_weights_follow_from_the_seed_alone():
    make = [weights_of(make_net(ModelChoice(), (1, 28, 28), 10, seed)) for seed in (0, 0, 1)]
    assert same_bits(make[0], make[1])
    assert not same_bits(make[0], make[2])


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
        (lambda: TinyNet((7,)), "", r"failed at \S+toy\.py:\d+ on an input of shape \(6,\)"),
    ],
)
def test_what_does_not_fit_is_refused(factory, last, reason):
    with pytest.raises(UserError, match=reason):
        make_net(ModelChoice(kind="python", last=last), (6,), 4, 0, factory)


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


def test_images_that_are_too_small_are_refused_without_a_warning_of_torchs(recwarn):
    with pytest.raises(UserError, match=r"needs images of at least 12x12 pixels.*\(1, 8, 8\); what fits"):
        make_net(ModelChoice(), (1, 8, 8), 10, 0)
    assert [str(warning.message) for warning in recwarn] == []
