"""FedProx: its term is added once."""

import pytest
import torch
import torch.nn.functional as F

from rebafl.algorithms.fedprox import FedProx
from rebafl.algorithms.interface import Training, gradients
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import broken, check_close, federation, make_client
from support.toy import TinyNet


def check_fedprox_gradient(algorithm, toy):
    """The local step is that of loss + mu/2 |w - w0|², with the term added once."""
    training = Training(epochs=3, batch=100, lr=0.1, momentum=0.0, weight_decay=0.0)
    (_, _, uploads), *_ = federation(toy, algorithm, 1, training=training)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    start = weights_of(net)
    own = make_client(toy, 1, None, training)
    for _ in range(3):
        net.zero_grad()
        distance = sum((p - start[name]).square().sum() for name, p in net.named_parameters())
        (F.cross_entropy(net(own.inputs), own.labels) + algorithm.mu / 2 * distance).backward()
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(0.1 * p.grad)
    check_close(uploads[0].change, {name: p.detach() - start[name] for name, p in net.named_parameters()})


def test_fedprox_adds_its_term_once(toy):
    check_fedprox_gradient(FedProx(mu=0.7), toy)


def term_inside_the_parameter_loop(self, net, context):
    """The whole term added once for every parameter."""
    count = len(list(net.parameters()))
    for name, parameter, gradient in gradients(net):
        gradient.add_(parameter.detach() - context.sent.weights[name], alpha=self.mu * count)


def test_mistakes_of_fedprox_are_noticed(toy):
    with pytest.raises(AssertionError, match=r"hidden\.weight differs"):
        check_fedprox_gradient(broken(FedProx(mu=0.7), {"correct": term_inside_the_parameter_loop}), toy)
