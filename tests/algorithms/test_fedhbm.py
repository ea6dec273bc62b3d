"""FedHBM: a federation in textbook code, one step by hand, and its classic mistakes, which must be noticed."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from rebafl import UserError
from rebafl.algorithms.fedhbm import FedHBM
from rebafl.algorithms.interface import Context, Server, Task, Training, gradients
from rebafl.base.rng import torch_stream
from support.methods import ThreeWeights, broken, check_close, exact, federation, make_client, one_step, three
from support.toy import TinyNet, run_toy

CLIENTS, LR, DECAY, EPOCHS = 5, 0.1, 1e-3, 3


def textbook(toy, beta, momentum, rounds):
    """Yield the weights after each round: one vector, one batch a step, and client r mod 5 away in round r."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    vector = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    last: dict[int, torch.Tensor] = {}
    way = weight = 0.0
    for _ in range(EPOCHS):  # how far a gradient of one leads
        weight = momentum * weight + 1
        way += LR * weight
    for round in range(rounds):
        ends = []
        for client in set(range(CLIENTS)) - {round % CLIENTS}:
            data, w, velocity = make_client(toy, client, None, Training()), vector.clone(), torch.zeros_like(vector)
            for _ in range(EPOCHS):
                torch.nn.utils.vector_to_parameters(w.clone(), net.parameters())
                loss = F.cross_entropy(net(data.inputs), data.labels)
                g = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(net.parameters()))])
                if client in last:
                    g = g - beta * (w - last[client]) / (way * CLIENTS / 4)  # four of five are there in each round
                velocity = momentum * velocity + g + DECAY * w
                w = w - LR * velocity
            last[client] = w
            ends.append(w)
        vector = torch.stack(ends).mean(0)
        torch.nn.utils.vector_to_parameters(vector.clone(), net.parameters())
        yield {name: p.detach().clone() for name, p in net.named_parameters()}


def check_is_the_textbooks(algorithm, toy, momentum):
    training = Training(epochs=EPOCHS, batch=100, lr=LR, momentum=momentum, weight_decay=DECAY)
    ours = federation(toy, algorithm, 6, clients=CLIENTS, training=training)
    for (server, _, _), expected in zip(ours, textbook(toy, algorithm.beta, momentum, 6), strict=True):
        check_close(server.weights, expected)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_federation_is_that_of_textbook_code(toy, momentum):
    check_is_the_textbooks(FedHBM(beta=0.7), toy, momentum)


def test_by_hand():
    """x = 1, y = 0, w = (1, 0, 0): g = (0, -.5, .5). The last model was (.5, .2, 0), the window is 2, beta = 1.

    w minus the last model, by 2: (.25, -.1, 0). So the step is (0, .5, -.5) + (.25, -.1, 0) = (.25, .4, -.5).
    """
    extra = {"window": exact([2.0])}
    upload, after = one_step(FedHBM(), ThreeWeights(), 1.0, 0, [1, 0], three(0.5, 0.2, 0.0), extra)
    check_close(upload.change, three(0.25, 0.4, -0.5))
    check_close(after, three(1.25, 0.4, -0.5))
    first, _ = one_step(FedHBM(), ThreeWeights(), 1.0, 0, [1, 0], None, extra)
    check_close(first.change, three(0.0, 0.5, -0.5))


def test_the_window_is_counted_unless_it_is_given(toy):
    windows = [FedHBM().broadcast(server)["window"].item() for server, _, _ in federation(toy, FedHBM())]
    assert windows == pytest.approx([1.25] * 4)  # four of five clients
    net = TinyNet()
    server = Server({}, FedHBM().server_state(net, Task(4, 5, 6)))
    assert FedHBM().broadcast(server)["window"].item() == 1
    assert FedHBM(window=10).broadcast(server)["window"].item() == 10


def test_the_last_model_is_the_one_that_the_server_got(toy):
    """Not the one that the client computed, if its upload was changed on its way out."""

    def coarse(upload, client):
        return replace(upload, change={name: (t * 64).round() / 64 for name, t in upload.change.items()})

    with torch_stream(0, "model"):
        received = dict(TinyNet().double().named_parameters())
    _, states, uploads = next(federation(toy, FedHBM(), 1, outgoing=coarse))
    for upload in uploads:
        check_close(states[upload.client], {name: w.detach() + upload.change[name] for name, w in received.items()})


def test_it_says_why_it_needs_plain_sgd(tmp_path, toy):
    with pytest.raises(UserError, match="fedhbm needs SGD with plain momentum, since its momentum is spread"):
        run_toy(tmp_path / "r", toy, algorithm="fedhbm", training={"nesterov": True})


def received_model_kept(self, net, context, upload, steps):
    return dict(context.sent.weights)


def pull_to_the_last_model(self, net, context):
    if last := context.prepared:
        for name, parameter, gradient in gradients(net):
            gradient.add_(parameter.detach() - last[name], alpha=float(last[".strength"]))


def the_same_in_every_step(self, net, context):
    """From the received model, not from where the client is by now."""
    if last := context.prepared:
        for name, _, gradient in gradients(net):
            gradient.add_(last[name] - context.sent.weights[name], alpha=float(last[".strength"]))


def all_of_it_in_every_step(self, net, sent, client):
    context = FedHBM.start(self, net, sent, client)
    stronger = {name: EPOCHS * tensor for name, tensor in context.prepared.items() if name == ".strength"}
    return Context(sent, client, context.prepared | stronger)


@pytest.mark.parametrize(
    "mistake",
    [
        {"next_state": received_model_kept},
        {"correct": pull_to_the_last_model},
        {"correct": the_same_in_every_step},
        {"start": all_of_it_in_every_step},
    ],
)
def test_mistakes_are_noticed(toy, mistake):
    with pytest.raises(AssertionError, match=r"hidden\.weight differs"):
        check_is_the_textbooks(broken(FedHBM(beta=0.7), mistake), toy, 0.0)
