"""MOON: its contrastive term, one round by hand, and its classic mistakes, which must be noticed."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rebafl import Classifier
from rebafl.algorithms.interface import Batch, Client, Context, Sent, Training
from rebafl.algorithms.moon import Moon
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import broken, check_close, exact, federation, make_client, one_step
from support.toy import TinyNet


def moon_term(toy, algorithm, state_from=None):
    """The contrastive term and its gradient for one batch."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    sent = Sent(weights_of(net))
    own = make_client(toy, 1, state_from and state_from(sent.weights), Training())
    context = algorithm.start(net, sent, own)
    batch = Batch(own.inputs, own.labels, torch.arange(20))
    whole = algorithm.loss(net, batch, context)
    term = whole - F.cross_entropy(net(batch.x), batch.y)
    net.zero_grad()
    term.backward()
    return term.item(), max(p.grad.abs().max().item() for p in net.hidden.parameters())


def test_moon_with_previous_equal_to_global_is_log_2_without_gradient(toy):
    for state in (None, lambda received: received):
        term, gradient = moon_term(toy, Moon(mu=1.0), state)
        assert term == pytest.approx(math.log(2), abs=1e-10)
        assert gradient < 1e-10
    term, gradient = moon_term(toy, Moon(), lambda w: {name: tensor.flip(0) for name, tensor in w.items()})
    assert abs(term - math.log(2)) > 0.01
    assert gradient > 1e-3


def test_moons_frozen_passes_run_once_a_round(toy, monkeypatch):
    """Two passes over the local data without gradients, whatever the number of epochs."""
    calls = []

    def features(self, net):
        calls.append(1)
        return torch.zeros(len(self.labels), 5).double()

    monkeypatch.setattr(Client, "features", features)
    training = Training(epochs=5, batch=7)
    list(federation(toy, Moon(), 2, clients=2, training=training))
    assert len(calls) == 1 + 2 - 1  # a first-time client needs one pass, later two; one client a round here


class Moonlet(Classifier):
    """Three weights with a feature of two dimensions: h = (a0 x, a1 x); z = b h."""

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1).double())

        def forward(self, h):
            return self.weight * h

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(exact([1.0, 0.0]))
        self.head = self.Scale()

    def features(self, x):
        return self.a * x


def check_moon(algorithm):
    """h = h_global = (1, 0), h_previous = (0, 1), tau = mu = 1, b = 0, x = 1, y = 0.

    The term is -log(e / (e + 1)); only the similarity with the previous feature moves, along (0, 1), with
    weight 1 / (1 + e). The cross entropy gives b the gradient -.5 and h none.
    """
    previous = {"a": exact([0.0, 1.0]), "head.weight": torch.zeros(1).double()}
    upload, after = one_step(algorithm, Moonlet(), 1.0, 0, [1, 0], previous)
    check_close(
        upload.change,
        {"a": exact([0.0, -1 / (1 + math.e)]), "head.weight": exact([0.5])},
    )
    check_close(after, {"a": exact([1.0, -1 / (1 + math.e)]), "head.weight": exact([0.5])})


def test_moon_by_hand():
    check_moon(Moon(tau=1.0))


def similarities_swapped(self, net, sent, client):
    own = Moon.start(self, net, sent, client).prepared
    return Context(sent, client, {"global": own["previous"], "previous": own["global"]})


def previous_is_the_received_model(self, net, context, upload, steps):
    return dict(context.sent.weights)


@pytest.mark.parametrize("methods", [{"start": similarities_swapped}, {"next_state": previous_is_the_received_model}])
def test_mistakes_of_moon_are_noticed(methods):
    with pytest.raises(AssertionError, match="a differs"):
        check_moon(broken(Moon(tau=1.0), methods))
