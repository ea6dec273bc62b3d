"""FedNTD: its term sample by sample, a gradient by hand, and its classic mistakes, which must be noticed."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from rebafl import Classifier
from rebafl.algorithms.fedntd import FedNTD
from rebafl.algorithms.interface import Batch, Client, Context, Sent, Training
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import broken, check_close, exact, federation, make_client
from support.toy import TinyNet


def local_and_received(toy, algorithm):
    """A local model that has moved, a client with 20 samples, and its round's context under the received model."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    own = make_client(toy, 1, None, Training())
    context = algorithm.start(net, Sent(weights_of(net)), own)
    received = net(own.inputs).detach()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.add_(0.3 * torch.linspace(-1, 1 + number, parameter.numel()).reshape(parameter.shape))
    return net, own, context, received


def opinion(logits, label, tau):
    """The softmax over all classes but the label's, in plain Python."""
    powers = {c: math.exp(z / tau) for c, z in enumerate(logits) if c != label}
    return {c: power / sum(powers.values()) for c, power in powers.items()}


def check_term(algorithm, toy):
    net, own, context, received = local_and_received(toy, algorithm)
    index = torch.tensor([19, 0, 7, 3])
    batch = Batch(own.inputs[index], own.labels[index], index)
    local = net(batch.x).tolist()
    expected = 0.0
    for row, i in enumerate(index.tolist()):
        label = int(own.labels[i])
        there = opinion(received[i].tolist(), label, algorithm.tau)
        here = opinion(local[row], label, algorithm.tau)
        everything = sum(math.exp(z) for z in local[row])
        divergence = sum(there[c] * math.log(there[c] / here[c]) for c in there)
        expected += (algorithm.beta * divergence - math.log(math.exp(local[row][label]) / everything)) / len(index)
    assert algorithm.loss(net, batch, context).item() == pytest.approx(expected, abs=1e-10), "loss differs"


@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (0.3, 3.0), (0.0, 1.0)])
def test_the_term_is_the_papers(toy, beta, tau):
    check_term(FedNTD(beta=beta, tau=tau), toy)


class Logits(Classifier):
    """Whatever comes in are features and logits alike, plus a shift that is trained."""

    class Shift(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(3).double())

        def forward(self, h):
            return h + self.bias

    def __init__(self):
        super().__init__()
        self.head = self.Shift()

    def features(self, x):
        return x


def test_by_hand():
    """Three classes, label 0, received logits (0, log 3, 0): of the others, class 1 has 3/4 and class 2 has 1/4.

    The local shift (0, -log 3, 0) makes the logits (0, 0, 0): every softmax over three is 1/3, over the others 1/2.
    The term's gradient is what the local opinion has too much: (0, 1/2 - 3/4, 1/2 - 1/4); cross entropy's is
    (-2/3, 1/3, 1/3). With beta = 2: (-2/3, 1/3 - 1/2, 1/3 + 1/2) = (-2/3, -1/6, 5/6).
    """
    algorithm, net = FedNTD(beta=2.0), Logits()
    x, y = exact([[0.0, math.log(3), 0.0]]), torch.tensor([0])
    own = Client(0, x, y, torch.tensor([1, 0, 0]), torch.zeros(1), Training(), *[None] * 2)
    context = algorithm.start(net, Sent(weights_of(net)), own)
    net.head.bias.data = exact([0.0, -math.log(3), 0.0])
    algorithm.loss(net, Batch(x, y, torch.tensor([0])), context).backward()
    check_close({"bias": net.head.bias.grad}, {"bias": exact([-2 / 3, -1 / 6, 5 / 6])})


def test_the_true_logit_feels_cross_entropy_only():
    """The others' gradient differs, and sums up to the same."""
    net, y = Logits(), torch.arange(12) % 3
    received = torch.linspace(-2, 2, 36, dtype=torch.float64).reshape(12, 3)
    own = Client(0, received, y, y.bincount(), torch.zeros(1), Training(), *[None] * 2)
    context = FedNTD().start(net, Sent(weights_of(net)), own)

    def gradient(loss):
        logits = received.sin().requires_grad_()
        loss(logits).backward()
        return logits.grad

    plain = gradient(lambda logits: F.cross_entropy(logits, y))
    distilled = gradient(lambda logits: FedNTD().loss(net, Batch(logits, y, torch.arange(12)), context))
    true = F.one_hot(y, 3) == 1
    check_close({"true": distilled[true], "sum": distilled.sum(1)}, {"true": plain[true], "sum": plain.sum(1)})
    assert float((distilled[~true] - plain[~true]).abs().max()) > 1e-3


def test_the_received_model_is_asked_once_a_round(toy, monkeypatch):
    calls = []
    original = Client.features

    def features(self, net):
        calls.append(self.id)
        return original(self, net)

    monkeypatch.setattr(Client, "features", features)
    list(federation(toy, FedNTD(), 2, clients=3, training=Training(epochs=5, batch=7)))
    assert calls == [1, 2, 0, 2]  # one of three is away in each round


def true_class_left_in(self, net, batch, context):
    net_logits = net(batch.x)
    received = torch.full_like(net_logits, -50.0)
    received[F.one_hot(batch.y, 4) == 0] = context.prepared["beliefs"][batch.index].flatten()
    own = F.log_softmax(net_logits / self.tau, dim=1)
    return F.cross_entropy(net_logits, batch.y) + self.beta * F.kl_div(
        own, received, reduction="batchmean", log_target=True
    )


def divergence_turned_round(self, net, batch, context):
    logits = net(batch.x)
    own = F.log_softmax(logits[F.one_hot(batch.y, 4) == 0].reshape(-1, 3) / self.tau, dim=1)
    received = context.prepared["beliefs"][batch.index]
    return F.cross_entropy(logits, batch.y) + self.beta * F.kl_div(
        received, own, reduction="batchmean", log_target=True
    )


def mean_over_classes_too(self, net, batch, context):
    plain = F.cross_entropy(net(batch.x), batch.y)
    return plain + (FedNTD.loss(self, net, batch, context) - plain) / 3


def position_in_the_batch(self, net, batch, context):
    return FedNTD.loss(self, net, replace(batch, index=torch.arange(len(batch.y))), context)


def temperature_of_one_side(self, net, sent, client):
    with torch.no_grad():
        logits = net(client.inputs)[F.one_hot(client.labels, 4) == 0].reshape(-1, 3)
    return Context(sent, client, {"beliefs": F.log_softmax(logits, dim=1)})


@pytest.mark.parametrize(
    "mistake",
    [
        {"loss": true_class_left_in},
        {"loss": divergence_turned_round},
        {"loss": mean_over_classes_too},
        {"loss": position_in_the_batch},
        {"start": temperature_of_one_side},
    ],
)
def test_mistakes_are_noticed(toy, mistake):
    with pytest.raises(AssertionError, match="loss differs"):
        check_term(broken(FedNTD(beta=0.7, tau=2.0), mistake), toy)
