"""Scaffold: its control variates, one round by hand, and its classic mistakes, which must be noticed."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Context, Sent, Server, Training, gradients
from rebafl.algorithms.scaffold import Scaffold
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from support.methods import ThreeWeights, broken, check_close, federation, make_client, mean_state, one_step, three
from support.toy import TinyNet


def check_scaffold_c_is_the_mean(algorithm, toy):
    for server, states, _ in federation(toy, algorithm):
        check_close({k: v.double() for k, v in server.state.items()}, mean_state(states, 5, server.state))


def check_scaffold_corrects(algorithm, toy):
    """In the second round the path is that of g + c - c_i; without the write-back of c_i it is not."""
    training = Training(epochs=1, batch=100, lr=0.1, momentum=0.0, weight_decay=0.0)
    (first, states, _), (_, _, uploads) = federation(toy, algorithm, 2, training=training)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    client = uploads[-1].client
    for name, p in net.named_parameters():
        p.data = first.weights[name].clone()
    own = make_client(toy, client, None, training)
    F.cross_entropy(net(own.inputs), own.labels).backward()
    by_hand = {n: -0.1 * (p.grad + first.state[n] - states[client][n]) for n, p in net.named_parameters()}
    assert any(states[client][name].abs().sum() > 0 for name in states[client]), "c_i is zero"
    check_close(uploads[-1].change, by_hand)


def test_scaffolds_first_round_is_fedavg(toy):
    (scaffold, _, _), *_ = federation(toy, Scaffold(), 1)
    (fedavg, _, _), *_ = federation(toy, KINDS["fedavg"](), 1)
    check_close(scaffold.weights, fedavg.weights)


def test_scaffolds_c_is_the_mean_of_all_c_i(toy):
    check_scaffold_c_is_the_mean(Scaffold(), toy)


def test_scaffold_corrects_by_c_minus_c_i(toy):
    check_scaffold_corrects(Scaffold(), toy)


def test_scaffolds_mean_gradient_is_exact_for_a_constant_gradient():
    """With momentum 0.5, four steps of a constant gradient of one move a weight by lr (1 + 1.5 + 1.75 + 1.875)."""
    training = Training(lr=0.1, momentum=0.5)
    assert Scaffold().path_length(training, 4) == pytest.approx(0.1 * 6.125)
    assert Scaffold(gradient="raw").path_length(training, 4) == pytest.approx(0.4)


def test_scaffold_by_hand():
    """a = 1, b = (0, 0), so every softmax is (1/2, 1/2), and the gradient of a is 0.

    Client 0: x = 1, y = 0: g = (0, -.5, .5). Client 1: x = 2, y = 1: g = (0, 1, -1).
    c = (.1, .2, -.2); c_0 = (0, .1, 0); c_1 = 0 (first time); one step of lr 1, no momentum.
    Steps -(g + c - c_i): (-.1, .4, -.3) and (-.1, -1.2, 1.2); their mean (-.1, -.4, .45) moves w to (.9, -.4, .45).
    With one step c_i becomes c_i - c + (g + c - c_i) = g: c_0 = (0, -.5, .5), c_1 = (0, 1, -1).
    With m = 4: c = (.1, .2, -.2) + ((0, -.6, .5) + (0, 1, -1)) / 4 = (.1, .3, -.325).
    """
    algorithm, c = Scaffold(), three(0.1, 0.2, -0.2)
    first, c_0 = one_step(algorithm, ThreeWeights(), 1.0, 0, [1, 0], three(0.0, 0.1, 0.0), c)
    second, c_1 = one_step(algorithm, ThreeWeights(), 2.0, 1, [0, 1], None, c, client=1)
    check_close(first.change, three(-0.1, 0.4, -0.3))
    check_close(second.change, three(-0.1, -1.2, 1.2))
    check_close(c_0, three(0.0, -0.5, 0.5))
    check_close(c_1, three(0.0, 1.0, -1.0))
    server = algorithm.aggregate(Server(three(1.0, 0.0, 0.0), c), [first, second], 4)
    check_close(server.weights, three(0.9, -0.4, 0.45))
    check_close(server.state, three(0.1, 0.3, -0.325))


AUTHORS = Scaffold(gradient="raw", scale="active", clip=10.0, correction="weights")
"""What the ReBaFL authors' public code computes."""

NARROW = replace(AUTHORS, clip=0.5)

TRAINING = Training(epochs=2, batch=7, lr=0.05, momentum=0.5, weight_decay=1e-3)


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def put(net, vector):
    with torch.no_grad():
        for p, part in zip(net.parameters(), vector.split([p.numel() for p in net.parameters()]), strict=True):
            p.copy_(part.reshape(p.shape))


def their_rounds(toy, rounds, clip, clients=5):
    """The authors' form again, on flat vectors and with torch's own optimiser: yields (w, c, all c_i)."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    w, c = flat(net.parameters()), torch.zeros(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    variates = [torch.zeros_like(c) for _ in range(clients)]
    for number in range(rounds):
        moves, changes = [], []
        for i in set(range(clients)) - {number % clients}:
            own, steps = make_client(toy, i, None, TRAINING), 0
            put(net, w)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5, weight_decay=1e-3)
            for _ in range(TRAINING.epochs):
                for index in torch.from_numpy(own.shuffle.permutation(len(own.labels))).split(TRAINING.batch):
                    optimiser.zero_grad()
                    F.cross_entropy(net(own.inputs[index]), own.labels[index]).backward()
                    torch.nn.utils.clip_grad_norm_(net.parameters(), clip)  # as the loss has it, without c - c_i
                    optimiser.step()
                    put(net, flat(net.parameters()) - 0.05 * (c - variates[i]))
                    steps += 1
            after = flat(net.parameters())
            change = (w - after) / (steps * 0.05) - c
            moves.append(after - w)
            changes.append(change)
            variates[i] = variates[i] + change
        w, c = w + torch.stack(moves).mean(0), c + torch.stack(changes).mean(0)
        yield w, c, list(variates)


def check_scaffold_is_the_authors(algorithm, toy):
    """Clients are away in turn, and momentum is on."""
    with torch_stream(0, "model"):
        names = [name for name, _ in TinyNet().named_parameters()]
    ours = federation(toy, algorithm, 4, training=TRAINING)
    for (server, states, _), (w, c, variates) in zip(ours, their_rounds(toy, 4, algorithm.clip), strict=True):
        found = {"weights": flat(server.weights[n] for n in names), "c": flat(server.state[n] for n in names)}
        check_close(found, {"weights": w, "c": c})
        for client, state in states.items():
            check_close({"c_i": flat(state[name] for name in names)}, {"c_i": variates[client]})


def test_scaffold_of_the_authors_again_in_other_words(toy):
    check_scaffold_is_the_authors(AUTHORS, toy)
    check_scaffold_is_the_authors(NARROW, toy)


@pytest.mark.parametrize(
    "other",
    [replace(NARROW, correction="gradient"), replace(NARROW, gradient="exact"), replace(NARROW, scale="all")],
    ids=["correction", "gradient", "scale"],
)
def test_no_other_form_is_the_authors(toy, other):
    with pytest.raises(AssertionError, match="differs"):
        check_scaffold_is_the_authors(other, toy)


def last_weights(toy, algorithm, **training):
    *_, (server, _, _) = federation(toy, algorithm, training=Training(epochs=2, batch=7, lr=0.05, **training))
    return server.weights


def test_without_momentum_and_clip_both_corrections_are_the_same(toy):
    """w - lr (g + c - c_i) in one go or in two; weight decay sees the weights before both."""
    plain, after = Scaffold(), Scaffold(correction="weights")
    check_close(last_weights(toy, plain, momentum=0.0), last_weights(toy, after, momentum=0.0))
    with pytest.raises(AssertionError, match="differs"):
        check_close(last_weights(toy, plain, momentum=0.5), last_weights(toy, after, momentum=0.5))
    plain, after = Scaffold(clip=0.5), Scaffold(clip=0.5, correction="weights")
    with pytest.raises(AssertionError, match="differs"):
        check_close(last_weights(toy, plain, momentum=0.0), last_weights(toy, after, momentum=0.0))


def test_past_momentum_the_mean_gradient_is_exact_for_a_constant_gradient(toy):
    """A gradient g in each of three steps, momentum .5: the way is lr (4.25 g + 3 (c - c_i)), and c_i becomes g."""
    net, c, own, g = ThreeWeights(), three(0.1, 0.2, -0.2), three(0.0, 0.1, 0.0), three(0.3, -0.5, 0.7)
    client = make_client(toy, 0, None, Training(lr=0.1, momentum=0.5))
    context = Context(Sent(weights_of(net), c), client, own)
    for name, p in net.named_parameters():
        p.data = p.data - 0.1 * (4.25 * g[name] + 3 * (c[name] - own[name]))
    check_close(Scaffold(correction="weights").next_variate(net, context, 3), g)


def never_written_back(self, net, context, upload, steps):
    return {name: torch.zeros_like(c) for name, c in context.prepared.items()}


def c_not_scaled(self, server, uploads, clients):
    return Scaffold.aggregate(self, server, uploads, len(uploads))


def correction_with_the_wrong_sign(self, net, context):
    for name, _, gradient in gradients(net):
        gradient.sub_(context.sent.extra[name]).add_(context.prepared[name])


@pytest.mark.parametrize(
    ("check", "methods", "noticed"),
    [
        (check_scaffold_c_is_the_mean, {"next_state": never_written_back}, "hidden.weight differs"),
        (check_scaffold_corrects, {"next_state": never_written_back}, "c_i is zero"),
        (check_scaffold_c_is_the_mean, {"aggregate": c_not_scaled}, "hidden.weight differs"),
        (check_scaffold_corrects, {"correct": correction_with_the_wrong_sign}, "hidden.weight differs"),
    ],
)
def test_mistakes_of_scaffold_are_noticed(toy, check, methods, noticed):
    with pytest.raises(AssertionError, match=noticed):
        check(broken(Scaffold(), methods), toy)
