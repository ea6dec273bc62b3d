"""The paper's two networks."""

import pytest
import torch
import torch.nn.functional as F

from rebafl.base.errors import UserError
from rebafl.models.choice import ModelChoice, make_net
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


def test_other_image_sizes_work_and_impossible_ones_are_refused():
    assert make_net(ModelChoice(), (3, 40, 64), 7, 0)(torch.zeros(2, 3, 40, 64)).shape == (2, 7)
    with pytest.raises(UserError, match="at least 12x12"):
        make_net(ModelChoice(), (1, 5, 5), 10, 0)
    with pytest.raises(UserError, match="what fits: model=mlp"):
        make_net(ModelChoice(), (20,), 10, 0)
