"""Alone: every client's model is trained by itself, their mean score counts, and nobody gets another's model."""

import pytest

from rebafl import UserError, make_settings
from rebafl.algorithms.alone import Alone
from rebafl.algorithms.fedavg import FedAvg
from rebafl.algorithms.interface import Context, Sent, Server, Task, Training
from rebafl.base.rng import torch_stream
from rebafl.models.contract import load_weights, weights_of
from rebafl.runs.simulate import trained_weights
from rebafl.training.loop import train
from support.methods import broken, check_close, federation, make_client
from support.toy import TinyNet, run_toy, same_bits, weights

TRAINING = Training(epochs=2, batch=7, lr=0.05, momentum=0.5, weight_decay=1e-3)
CLIENTS = 5


def check_by_themselves(algorithm, toy):
    """Client c is away in round r where r mod 5 = c; what it has then is FedAvg's training of one, again and again."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    models = dict.fromkeys(range(CLIENTS), weights_of(net))
    for round, (server, states, _) in enumerate(federation(toy, algorithm, 6, CLIENTS, TRAINING)):
        for client in set(range(CLIENTS)) - {round % CLIENTS}:
            before = models[client]
            upload, _ = train(net, FedAvg(), Sent(before), make_client(toy, client, None, TRAINING))
            models[client] = {name: before[name] + change for name, change in upload.change.items()}
        for client, model in enumerate(algorithm.scored(server)):
            check_close(model, models[client])
            assert client not in states or same_bits(states[client], model)


def test_every_client_trains_by_itself(toy):
    check_by_themselves(Alone(), toy)


def begins_anew(self, net, sent, client):
    return Context(sent, client)


def mean_of_all(self, server, uploads, clients):
    after = Alone.aggregate(self, server, uploads, clients)
    return Server(FedAvg().aggregate(server, uploads, clients).weights, after.state)


@pytest.mark.parametrize("mistake", [{"start": begins_anew}, {"aggregate": mean_of_all}])
def test_mistakes_are_noticed(toy, mistake):
    with pytest.raises(AssertionError, match=r"hidden\.weight differs"):
        check_by_themselves(broken(Alone(), mistake), toy)


def test_the_accuracy_is_the_mean_of_the_clients(tmp_path, toy):
    """And nothing of it can be exported as one model."""
    run = run_toy(tmp_path / "r", toy, algorithm="alone", participation={"kind": "bernoulli", "p": 0.5})
    saved = run.server()
    models = Alone().scored(Server(saved["weights"], saved["state"]))
    assert len(models) == 6
    net, found = TinyNet(), []
    for model in models:
        load_weights(net, model)
        hits = net(toy.inputs(toy.x_test)).argmax(1) == toy.y_test
        found.append(hits.double().mean().item())
    assert len(set(found)) > 1
    assert run.rounds()[-1].accuracy == pytest.approx(100 * sum(found) / 6, abs=1e-9)
    with torch_stream(0, "model"):
        first = weights_of(TinyNet())
    assert same_bits(weights(run), first), "what is sent stays the first model"
    with pytest.raises(UserError, match="a model for each client and none for all"):
        trained_weights(run, make_settings(run.config()))


def test_too_many_clients_are_refused():
    with pytest.raises(UserError, match=r"1000 at the most; lower partition\.clients"):
        Alone().server_state(TinyNet(), Task(4, 5, 1001))
    assert len(Alone().server_state(TinyNet(), Task(4, 5, 1000))) == 1000 * len(weights_of(TinyNet()))
