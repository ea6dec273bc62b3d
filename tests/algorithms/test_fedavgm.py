"""FedAvgM: torch's momentum on the mean change, two rounds by hand, and its classic mistakes, which must be noticed."""

import pytest
import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.fedavgm import FedAvgM
from rebafl.algorithms.interface import Server, Task
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import (
    ThreeWeights,
    broken,
    check_buffers_are_averaged_as_in_fedavg,
    check_close,
    federation,
    three,
)
from support.toy import TinyNet


def check_is_torchs_momentum(algorithm, toy):
    """The server's step is torch.optim.SGD's, whose gradient is minus the mean change, weighted by samples."""
    with torch_stream(0, "model"):
        theirs = TinyNet().double()
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.8)
    for server, _, uploads in federation(toy, algorithm):
        total = sum(upload.samples for upload in uploads)
        for name, parameter in theirs.named_parameters():
            parameter.grad = -sum(upload.samples / total * upload.change[name] for upload in uploads)
        optimiser.step()
        check_close(server.weights, weights_of(theirs))


def test_it_is_torchs_momentum_on_the_mean_change(toy):
    check_is_torchs_momentum(FedAvgM(beta=0.8, lr=0.5), toy)


def one_upload(*change):
    return [Upload(0, three(*change), torch.tensor([1, 0]))]


def test_by_hand():
    """beta = .5, lr = .2, w = (1, 0, 0). Changes (1, 0, 2), then (0, 4, -1).

    v = (1, 0, 2), w = (1.2, 0, .4); then v = (.5, 4, 0), w = (1.3, .8, .4).
    """
    algorithm, net = FedAvgM(beta=0.5, lr=0.2), ThreeWeights()
    server = Server(weights_of(net), algorithm.server_state(net, Task(2, 1, 1)))
    server = algorithm.aggregate(server, one_upload(1.0, 0.0, 2.0), 1)
    check_close(server.state, three(1.0, 0.0, 2.0))
    check_close(server.weights, three(1.2, 0.0, 0.4))
    server = algorithm.aggregate(server, one_upload(0.0, 4.0, -1.0), 1)
    check_close(server.state, three(0.5, 4.0, 0.0))
    check_close(server.weights, three(1.3, 0.8, 0.4))


def test_buffers_have_no_momentum():
    check_buffers_are_averaged_as_in_fedavg(FedAvgM(beta=0.9, lr=2.0))


def rate_applied_twice(self, server, means, clients):
    """The velocity gathers steps that the rate is in already, and is multiplied with it again."""
    velocity = {name: self.beta * v + self.lr * means.change[name] for name, v in server.state.items()}
    weights = {name: weight + self.lr * velocity[name] for name, weight in server.weights.items()}
    return Server(weights, velocity)


def velocity_forgotten(self, server, means, clients):
    return Server(FedAvgM.next_server(self, server, means, clients).weights, server.state)


def velocity_damped(self, server, means, clients):
    """(1 - beta) times the change, as in a moving average."""
    velocity = {name: self.beta * v + (1 - self.beta) * means.change[name] for name, v in server.state.items()}
    return Server({name: weight + self.lr * velocity[name] for name, weight in server.weights.items()}, velocity)


@pytest.mark.parametrize("mistake", [rate_applied_twice, velocity_forgotten, velocity_damped])
def test_mistakes_are_noticed(toy, mistake):
    with pytest.raises(AssertionError, match=r"hidden\.weight differs"):
        check_is_torchs_momentum(broken(FedAvgM(beta=0.8, lr=0.5), {"next_server": mistake}), toy)
