"""One client, one step or a whole federation in float64, without engine or record, to follow an algorithm exactly."""

from dataclasses import fields

import torch
from torch import nn

from rebafl import Classifier, parameters
from rebafl.algorithms.aggregate import Upload, weighted_mean
from rebafl.algorithms.interface import Client, Sent, Server, Task, Training
from rebafl.base.rng import generator, torch_stream
from rebafl.base.tensors import Tensors
from rebafl.models.contract import weights_of
from rebafl.training.loop import train, unchanged
from support.toy import TinyNet, run_toy


def client(toy, index, **training):
    labels = toy.y_train[index]
    counts = labels.bincount(minlength=4)
    streams = generator(0, "t"), generator(0, "a")
    return Client(2, toy.inputs(toy.x_train[index]), labels, counts, torch.zeros(6), Training(**training), *streams)


def started(toy, algorithm, prototypes=None, mass=None, index=None):
    """A network and the context of one client's round."""
    with torch_stream(0, "model"):
        net = TinyNet()
    state = algorithm.server_state(net, Task(4, 5, 6))
    if prototypes is not None:
        state = {"prototypes": prototypes, "mass": mass}
    sent = Sent(weights_of(net), algorithm.broadcast(Server(weights_of(net), state)))
    own = client(toy, torch.arange(45, 75) if index is None else index)  # 5 of class 0, 25 of class 1
    return net, sent, own, algorithm.start(net, sent, own)


BOUNDS = {"alone", "centralised"}
"""No federations: there is nothing to sum."""


ROUNDS = 4


def make_client(toy, client, state, training, balanced=False):
    """Six clients with two classes each; `balanced`: all four classes, equally many."""
    per = 5 if balanced else 10
    held = range(4) if balanced else ((client % 4), (client + 1) % 4)
    index = torch.cat([torch.nonzero(toy.y_train == c).flatten()[per * client : per * client + per] for c in held])
    labels = toy.y_train[index]
    counts = labels.bincount(minlength=4)
    inputs = toy.inputs(toy.x_train[index]).double()
    return Client(
        client, inputs, labels, counts, torch.zeros(6), training, generator(0, "t", 0, client), generator(0, "a"), state
    )


def federation(toy, algorithm, rounds=ROUNDS, clients=5, training=None, lost=(), balanced=False, outgoing=unchanged):
    """Yield (server, client states, uploads) after each round; client r mod 5 is away in round r."""
    training = training or Training(epochs=2, batch=7, lr=0.05, momentum=0.5, weight_decay=1e-3)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    server = Server(weights_of(net), algorithm.server_state(net, Task(4, 5, clients)))
    states: dict[int, Tensors] = {}
    for round in range(rounds):
        sent = Sent(server.weights, algorithm.broadcast(server))
        uploads = []
        for client in range(clients):
            if client == round % clients:
                continue
            own = make_client(toy, client, states.get(client), training, balanced)
            upload, after = train(net, algorithm, sent, own, outgoing)
            if (round, client) not in lost:
                uploads.append(upload)
                states[client] = after
        server = algorithm.aggregate(server, uploads, clients)
        yield server, dict(states), uploads


def check_close(a, b, tolerance=1e-10):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=0, atol=tolerance), f"{name} differs"


def mean_state(states, clients, like):
    """The mean over all clients; those never seen count as zero."""
    zero = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    return weighted_mean([states.get(client, zero) for client in range(clients)], [1.0] * clients)


class ThreeWeights(Classifier):
    """h = a x; z = (b0 h, b1 h)."""

    def __init__(self, a=1.0, b=(0.0, 0.0)):
        super().__init__()
        self.a = nn.Parameter(exact([a]))
        self.head = nn.Linear(1, 2, bias=False).double()
        self.head.weight.data = exact(b).reshape(2, 1)

    def features(self, x):
        return self.a * x


class Normed(Classifier):
    """h is x normalised, by running statistics that are no parameters; z = b h."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.head = nn.Linear(1, 2, bias=False)

    def features(self, x):
        return self.norm(x)


def check_buffers_are_averaged_as_in_fedavg(algorithm):
    """A running variance falls from 1 to .1 and stays there; anything but a mean would carry it below 0."""
    net = Normed()
    server = Server(weights_of(net), algorithm.server_state(net, Task(2, 1, 1)))
    for _ in range(2):
        shared = {name: torch.full_like(like, 3.0) for name, like in algorithm.shared_template(server).items()}
        change = {name: torch.zeros_like(weight) for name, weight in server.weights.items()}
        change["norm.running_var"] = 0.1 - server.weights["norm.running_var"]
        change["norm.num_batches_tracked"] += 3
        server = algorithm.aggregate(server, [Upload(0, change, torch.tensor([1, 0]), shared)], 1)
    assert abs(server.weights["norm.running_var"].item() - 0.1) < 1e-6
    assert server.weights["norm.num_batches_tracked"].item() == 6


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def three(a, b0, b1):
    return {"a": exact([a]), "head.weight": exact([[b0], [b1]])}


STEP = Training(epochs=1, batch=9, lr=1.0, momentum=0.0, weight_decay=0.0)


def one_step(algorithm, net, x, y, counts, state=None, extra=None, client=0):
    """One client with one sample and one step of learning rate one."""
    sent = Sent(weights_of(net), extra or {})
    own = Client(client, exact([[x]]), torch.tensor([y]), torch.tensor(counts), torch.zeros(1), STEP,
                 generator(0, "t"), generator(0, "a"), state)  # fmt: skip
    return train(net, algorithm, sent, own)


def broken(base, methods):
    """A copy of an algorithm with some methods replaced."""
    cls: type = parameters(type(f"Broken{type(base).__name__}", (type(base),), methods))
    return cls(**{name: getattr(base, name) for name in (f.name for f in fields(base))})


def run_method(tmp_path, toy, name, **algorithm):
    """A whole run of the small problem, in a directory of its own."""
    return run_toy(tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}", toy, algorithm={"kind": name, **algorithm})
