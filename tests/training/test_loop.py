"""Batches visit every sample, and two steps are those of SGD by hand."""

import torch

from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Training
from rebafl.training.loop import batches, train
from support.methods import client, started
from support.toy import TinyNet


def test_every_epoch_visits_every_sample_once_in_a_new_order(toy):
    steps = list(batches(client(toy, torch.arange(45, 75), epochs=2, batch=8)))
    assert [len(step.y) for step in steps] == [8, 8, 8, 6] * 2
    orders = [torch.cat([step.index for step in steps[a : a + 4]]) for a in (0, 4)]
    assert all(torch.equal(order.sort().values, torch.arange(30)) for order in orders)
    assert not torch.equal(*orders)


def test_weight_decay_and_momentum_are_those_of_sgd_by_hand(toy):
    """Two full-batch steps recomputed with v = m v + g + wd w; w = w - lr v."""
    algorithm = KINDS["fedavg"]()
    net, sent, own, _ = started(toy, algorithm)
    settings = Training(epochs=2, batch=30, lr=0.1, momentum=0.5, weight_decay=0.01)
    own = client(
        toy,
        torch.arange(45, 75),
        **{k: getattr(settings, k) for k in ("epochs", "batch", "lr", "momentum", "weight_decay")},
    )
    upload, _ = train(net, algorithm, sent, own)
    hand = TinyNet()
    hand.load_state_dict(sent.weights)
    velocity = {name: torch.zeros_like(p) for name, p in hand.named_parameters()}
    for _ in range(2):
        hand.zero_grad()
        torch.nn.functional.cross_entropy(hand(own.inputs), own.labels).backward()
        with torch.no_grad():
            for name, p in hand.named_parameters():
                velocity[name] = 0.5 * velocity[name] + p.grad + 0.01 * p
                p.sub_(0.1 * velocity[name])
    for name, p in hand.named_parameters():
        assert torch.allclose(upload.change[name], p.detach() - sent.weights[name], atol=1e-6)
