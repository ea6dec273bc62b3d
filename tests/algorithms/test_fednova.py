"""FedNova: its fixed point, a round by hand, FedAvg where all take as many steps, and mistakes that must be noticed."""

from dataclasses import replace

import pytest
import torch

from rebafl import UserError
from rebafl.algorithms.aggregate import Upload, means_of
from rebafl.algorithms.fedavg import FedAvg
from rebafl.algorithms.fednova import FedNova
from rebafl.algorithms.interface import Client, Sent, Server, Task, Training
from rebafl.base.rng import generator
from rebafl.models.contract import weights_of
from rebafl.training.loop import train
from support.methods import (
    ThreeWeights,
    broken,
    check_buffers_are_averaged_as_in_fedavg,
    check_close,
    exact,
    federation,
    three,
)
from support.toy import run_toy, same_bits, weights


def upload(client, samples, steps, *change):
    return Upload(client, three(*change), torch.tensor([samples, 0]), {"steps": exact([steps])})


def test_by_hand():
    """One sample and one step, change (4, 0, 0); three samples and five steps, (0, 10, 5) in all, (0, 2, 1) a step.

    A mean step is (1, 1.5, .75); there are 1/4 + 15/4 = 4 steps in the mean. w = (1, 0, 0) becomes (5, 6, 3).
    """
    server = Server(three(1.0, 0.0, 0.0), FedNova().server_state(ThreeWeights(), Task(2, 1, 2)))
    uploads = [upload(0, 1, 1.0, 4.0, 0.0, 0.0), upload(1, 3, 5.0, 0.0, 2.0, 1.0)]
    check_close(FedNova().aggregate(server, uploads, 2).weights, three(5.0, 6.0, 3.0))


def squared_distance(self, net, batch, context):
    """To the one input that a client has, again and again: its optimum is known."""
    return (net.a - batch.x.mean()).square().sum() / 2


def settles_at(algorithm, momentum, epochs=(2, 2)):
    """Where two clients settle: with one sample at 0 and three at 1, so that one takes three times the steps."""
    training = Training(batch=1, lr=1e-3, momentum=momentum, weight_decay=0.0)
    net = ThreeWeights()
    algorithm = broken(algorithm, {"loss": squared_distance})
    server = Server(weights_of(net), algorithm.server_state(net, Task(2, 1, 2)))
    moves = []
    for start in (0.0, 1.0):
        at = replace(server, weights={**server.weights, "a": exact([start])})
        uploads = []
        for number, (samples, value) in enumerate(((1, 0.0), (3, 1.0))):
            x, y = exact([[value]] * samples), torch.zeros(samples, dtype=torch.int64)
            manages = replace(training, epochs=epochs[number])
            own = Client(number, x, y, torch.tensor([samples, 0]), torch.zeros(1), manages,
                         generator(0, "t"), generator(0, "a"))  # fmt: skip
            uploads.append(train(net, algorithm, Sent(at.weights), own)[0])
        moves.append(algorithm.aggregate(at, uploads, 2).weights["a"].item() - start)
    return moves[0] / (moves[0] - moves[1])  # a round's move is linear in where it starts


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_settles_where_every_sample_counts_alike(momentum):
    """At 3/4, while FedAvg is drawn to the client with more steps: without momentum to 9/10."""
    assert settles_at(FedNova(), momentum) == pytest.approx(0.75, abs=2e-3)
    assert settles_at(FedAvg(), 0.0) == pytest.approx(0.9, abs=2e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_so_it_does_where_clients_manage_different_parts_of_their_work(momentum):
    """Eight passes over one sample against one over three; FedAvg is drawn to the former: 3 (3/4) of 8/4 + 9/4."""
    assert settles_at(FedNova(), momentum, epochs=(8, 1)) == pytest.approx(0.75, abs=2e-3)
    assert settles_at(FedAvg(), 0.0, epochs=(8, 1)) == pytest.approx(9 / 17, abs=2e-3)


def test_it_says_why_it_needs_plain_sgd(tmp_path, toy):
    with pytest.raises(UserError, match="fednova needs SGD with plain momentum, since it divides by the number"):
        run_toy(tmp_path / "r", toy, algorithm="fednova", training={"optimizer": "adam"})


def plain_steps(self, context, steps):
    return float(steps)


def test_momentum_left_out_is_noticed():
    """Six steps with momentum .9 are more than three times two of them."""
    wrong = settles_at(broken(FedNova(), {"length": plain_steps}), 0.9)
    assert wrong > 0.8


def test_where_all_take_as_many_steps_it_is_fedavg(toy):
    rounds = zip(federation(toy, FedNova()), federation(toy, FedAvg()), strict=True)
    for (nova, _, _), (average, _, _) in rounds:
        check_close(nova.weights, average.weights)


def test_with_a_power_of_two_of_everything_it_is_fedavg_to_the_bit(tmp_path, toy):
    """Four clients, four plain steps: neither division nor mean rounds."""
    changes = {
        "partition": {"kind": "pathological", "clients": 4, "classes": 2, "samples": 16},
        "training": {"epochs": 2, "batch": 8, "lr": 0.05, "momentum": 0.0},
        "participation": "always",
    }
    found = [weights(run_toy(tmp_path / name, toy, algorithm=name, **changes)) for name in ("fednova", "fedavg")]
    assert same_bits(*found)


def test_where_sizes_differ_it_is_not(tmp_path, toy):
    uneven = {"partition": {"kind": "dirichlet", "clients": 5, "alpha": 0.3, "least": 4}}
    found = [weights(run_toy(tmp_path / name, toy, algorithm=name, **uneven)) for name in ("fednova", "fedavg")]
    assert not same_bits(*found)


def test_buffers_are_averaged():
    check_buffers_are_averaged_as_in_fedavg(FedNova())


def steps_summed(self, server, means, clients):
    return FedNova.next_server(self, server, replace(means, shared={"steps": 2 * means.shared["steps"]}), clients)


def steps_of_the_mean_left_out(self, server, means, clients):
    return FedNova.next_server(self, server, replace(means, shared={"steps": exact([1.0])}), clients)


def steps_not_weighted(self, server, uploads, clients):
    means = means_of(uploads, "samples", lambda name: "clients")
    return self.next_server(server, means, clients)


@pytest.mark.parametrize(
    "mistake",
    [{"next_server": steps_summed}, {"next_server": steps_of_the_mean_left_out}, {"aggregate": steps_not_weighted}],
)
def test_mistakes_are_noticed(mistake):
    wrong = broken(FedNova(), mistake)
    server = Server(three(1.0, 0.0, 0.0), FedNova().server_state(ThreeWeights(), Task(2, 1, 2)))
    uploads = [upload(0, 1, 1.0, 4.0, 0.0, 0.0), upload(1, 3, 5.0, 0.0, 2.0, 1.0)]
    with pytest.raises(AssertionError, match="differs"):
        check_close(wrong.aggregate(server, uploads, 2).weights, three(5.0, 6.0, 3.0))
