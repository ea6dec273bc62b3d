"""Views: the features themselves, whatever the model, differentiable in the pictures."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rebafl.base.errors import UserError
from rebafl.base.rng import torch_stream
from rebafl.data.arrays import Inputs
from rebafl.models.contract import Classifier, extract
from rebafl.models.networks import MLP, CifarCNN, FashionCNN
from rebafl.privacy.inversion.depths import deep, pictures_of, shallow
from support.pictures import INPUTS, net


class OwnNet(Classifier):
    """Calls its convolutions, not in the order in which it has them, and scales what it is given."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.later = nn.Conv2d(4, 2, 3)
        self.sooner = nn.Conv2d(shape[0], 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(2 * (shape[1] - 2) * (shape[2] - 2), classes)

    def features(self, x: Tensor) -> Tensor:
        return self.later(self.norm(self.sooner(2 * x)).relu()).flatten(1)


def made(kind, shape):
    with torch_stream(3, "test"):
        return kind(shape, 10).eval()


def inputs_of(shape: tuple[int, ...]) -> Inputs:
    some = tuple(0.4 + 0.01 * n for n in range(shape[0]))
    return Inputs(classes=tuple("abcdefghij"), shape=shape, mean=some, std=some, pixels=True)


def stored(shape: tuple[int, ...]) -> Tensor:
    channels, height, width = shape
    numbers = torch.arange(7 * height * width * channels) * 37 % 256
    return numbers.to(torch.uint8).reshape(7, height, width, channels)


@pytest.mark.parametrize(
    ("kind", "shape"), [(FashionCNN, (1, 28, 28)), (CifarCNN, (3, 32, 32)), (OwnNet, (3, 9, 8)), (MLP, (1, 6, 5))]
)
def test_deep_features_are_those_of_the_contract_bit_for_bit(kind, shape):
    model, inputs, raw = made(kind, shape), inputs_of(shape), stored(shape)
    assert torch.equal(deep(model, inputs)(pictures_of(raw, inputs)), extract(model, inputs(raw)))


@pytest.mark.parametrize(("kind", "shape"), [(FashionCNN, (1, 28, 28)), (CifarCNN, (3, 32, 32))])
def test_shallow_features_are_the_first_convolution_of_the_paper_s_networks(kind, shape):
    model, inputs, raw = made(kind, shape), inputs_of(shape), stored(shape)
    expected = F.conv2d(inputs(raw), model.conv1.weight, model.conv1.bias).flatten(1)
    found = shallow(model, inputs)(pictures_of(raw, inputs))
    assert found.shape[1] == 16 * (shape[1] - 4) * (shape[2] - 4)
    torch.testing.assert_close(found, expected)


def test_shallow_features_of_an_own_model_are_those_of_the_convolution_that_is_called_first():
    shape = (3, 9, 8)
    model, inputs, raw = made(OwnNet, shape), inputs_of(shape), stored(shape)
    expected = F.conv2d(2 * inputs(raw), model.sooner.weight, model.sooner.bias, padding=1).flatten(1)
    torch.testing.assert_close(shallow(model, inputs)(pictures_of(raw, inputs)), expected)


@pytest.mark.parametrize("view", [deep, shallow])
def test_the_gradient_is_that_of_finite_differences(view):
    features = view(net().double(), INPUTS)
    picture = torch.linspace(0, 1, 144, dtype=torch.float64).cos().reshape(1, 1, 12, 12).requires_grad_()
    assert torch.autograd.gradcheck(features, [picture], atol=1e-6)


def test_a_view_keeps_the_weights_it_was_made_with():
    model, pictures = net(), torch.full((2, 1, 12, 12), 0.3)
    view = deep(model, INPUTS)
    before = view(pictures)
    with torch.no_grad():
        model.hidden.weight.zero_()
    assert torch.equal(view(pictures), before)
    assert not before.requires_grad  # the weights are not what is differentiated


def test_a_model_without_a_convolution_says_so():
    with pytest.raises(UserError, match="MLP has no convolution that reads the pictures"):
        shallow(made(MLP, (1, 6, 5)), inputs_of((1, 6, 5)))


@pytest.mark.parametrize(("shape", "pixels"), [((12,), True), ((1, 6, 5), False)])
def test_what_is_no_picture_is_refused(shape, pixels):
    inputs = Inputs(classes=("a",), shape=shape, mean=(0.0,), std=(1.0,), pixels=pixels)
    with pytest.raises(UserError, match="images stored as bytes"):
        deep(made(MLP, shape), inputs)
