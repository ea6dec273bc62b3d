"""Identities between algorithms, bit for bit over whole runs, and hooks by hand."""

import copy

import numpy as np
import pytest
import torch

from conftest import TinyNet, lines, run_toy, same_bits, weights
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Batch, Client, Sent, Server, Task, Training
from rebafl.algorithms.rebafl import ReBaFL
from rebafl.base.rng import generator, torch_stream
from rebafl.models.contract import weights_of
from rebafl.training.loop import batches, train


def run(tmp_path, toy, name, **algorithm):
    return run_toy(tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}", toy, algorithm={"kind": name, **algorithm})


def test_rebafl_without_both_parts_is_fedavg(tmp_path, toy):
    assert same_bits(weights(run(tmp_path, toy, "rebafl", mu=0.0, eps=1.0)), weights(run(tmp_path, toy, "fedavg")))


def test_rebafl_with_eps_zero_and_no_augmentation_is_bsm(tmp_path, toy):
    assert same_bits(weights(run(tmp_path, toy, "rebafl", mu=0.0, eps=0.0)), weights(run(tmp_path, toy, "bsm-fedavg")))


def test_the_three_methods_differ(tmp_path, toy):
    found = [weights(run(tmp_path, toy, name)) for name in ("fedavg", "bsm-fedavg", "rebafl")]
    assert not any(same_bits(found[a], found[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_with_uniform_counts_bsm_is_fedavg(tmp_path, toy):
    """Every client holds equally many samples of each class: the prior adds exact zeros."""
    every = {"kind": "pathological", "clients": 6, "classes": 4, "samples": 20}
    found = [
        weights(run_toy(tmp_path / name, toy, partition=every, algorithm=name)) for name in ("bsm-fedavg", "fedavg")
    ]
    assert same_bits(*found)


def test_the_readings_of_dropout_give_the_same_model(tmp_path, toy):
    """A lost upload leaves no trace: only who trained, and what was sent, differ."""
    away, lost = (run_toy(tmp_path / d, toy, dropout=d) for d in ("away", "lost"))
    assert same_bits(weights(away), weights(lost))
    for a, b in zip(lines(away.path), lines(lost.path), strict=True):
        assert b["active"] == list(range(6))
        assert set(b["active"]) - set(b["lost"]) == set(a["active"])
        assert b["bytes_down"] * len(a["active"]) == a["bytes_down"] * 6
        assert b["bytes_up"] * len(a["active"]) == a["bytes_up"] * 6


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


def test_in_the_first_round_targets_are_the_own_classes(toy):
    _, _, _, context = started(toy, ReBaFL())
    assert context.prepared["targets"].unique().tolist() == [0, 1]


def test_own_prototypes_replace_received_ones_and_others_stay(toy):
    table, mass = torch.full((4, 5), 9.0), torch.tensor([3.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    net, _, own, context = started(toy, ReBaFL(), table, mass)
    with torch.no_grad():
        h = net.features(own.inputs)
    assert torch.allclose(context.prepared["prototypes"][0], h[:5].mean(0), atol=1e-6)
    assert torch.allclose(context.prepared["prototypes"][1], h[5:].mean(0), atol=1e-6)
    assert context.prepared["prototypes"][2].tolist() == [9.0] * 5
    assert context.prepared["targets"].unique().tolist() == [0, 1, 2]
    _, _, _, missing = started(toy, ReBaFL(targets="missing"), table, mass)
    assert missing.own["targets"].unique().tolist() == [2]


def test_the_augmentation_loss_reaches_the_head_only(toy):
    """The extractor's gradient is the same with and without it; the head's is not."""
    gradients = []
    for mu in (0.0, 5.0):
        algorithm = ReBaFL(mu=mu)
        net, _, own, context = started(toy, algorithm)
        algorithm.loss(net, Batch(own.inputs, own.labels, torch.arange(30)), context).backward()
        gradients.append({name: p.grad.clone() for name, p in net.named_parameters()})
    assert torch.equal(gradients[0]["hidden.weight"], gradients[1]["hidden.weight"])
    assert not torch.equal(gradients[0]["head.weight"], gradients[1]["head.weight"])


def test_rebafls_loss_by_hand(toy):
    """Both terms recomputed with explicit probabilities; the augmented prior is counted within the batch."""
    algorithm = ReBaFL(eps=0.1, mu=0.7, lam=0.5)
    net, _, own, context = started(toy, algorithm)
    batch = Batch(own.inputs[:7], own.labels[:7], torch.arange(7))
    with torch.no_grad():
        h = net.features(batch.x)
        p = context.prepared["prototypes"]
        targets = torch.tensor([0, 1, 0, 1, 0, 1, 0])
        moved = p[targets] + 0.5 * (h - p[batch.y])
        prior = 0.9 * torch.tensor([5, 25, 0, 0]) / 30 + 0.1 / 4
        augmented = 0.9 * torch.tensor([4, 3, 0, 0]) / 7 + 0.1 / 4

        def term(features, labels, prior):
            scores = prior * net.head(features).exp()
            return -(scores[range(7), labels] / scores.sum(1)).log().mean()

        expected = term(h, batch.y, prior) + 0.7 * term(moved, targets, augmented)
    assert algorithm.loss(net, batch, context).item() == pytest.approx(expected.item(), abs=1e-6)


def test_missing_proxies_get_no_gradient_with_eps_zero(toy):
    algorithm = ReBaFL(eps=0.0, mu=0.0)
    net, _, own, context = started(toy, algorithm)
    algorithm.loss(net, Batch(own.inputs, own.labels, torch.arange(30)), context).backward()
    assert torch.equal(net.head.weight.grad[2:], torch.zeros(2, 5))
    assert (net.head.weight.grad[:2] != 0).any()


def test_eps_may_differ_by_client():
    assert [ReBaFL(eps=(0.1, 0.2, 0.3)).eps_of(client) for client in range(5)] == [0.1, 0.2, 0.3, 0.1, 0.2]


def test_uploaded_prototypes_are_those_of_the_trained_extractor(toy):
    algorithm = ReBaFL()
    net, sent, own, _ = started(toy, algorithm)
    upload, _ = train(net, algorithm, sent, own)
    with torch.no_grad():
        h = net.features(own.inputs)
    assert torch.allclose(upload.shared["prototypes"][1], h[own.labels == 1].mean(0), atol=1e-6)
    assert upload.shared["prototypes"][2:].abs().sum() == 0


@pytest.mark.parametrize("memory", [False, True])
def test_memory_keeps_the_prototype_of_a_class_nobody_uploaded(toy, memory):
    algorithm = ReBaFL(memory=memory)
    net, sent, own, _ = started(toy, algorithm)
    old = {"prototypes": torch.full((4, 5), 9.0), "mass": torch.tensor([1.0, 1.0, 5.0, 0.0], dtype=torch.float64)}
    upload, _ = train(net, algorithm, sent, own)
    after = algorithm.aggregate(Server(sent.weights, old), [upload], 6)
    assert after.state["mass"].tolist() == ([5, 25, 5, 0] if memory else [5, 25, 0, 0])
    assert torch.allclose(after.state["prototypes"][0], upload.shared["prototypes"][0])
    assert (after.state["prototypes"][2] == 9).all() == memory


def test_drawing_noise_does_not_change_the_order_of_samples(tmp_path, toy):
    """With lam = 0 both kinds of variation are the bare prototype: the runs must be the same."""
    found = [weights(run(tmp_path, toy, "rebafl", lam=0.0, noise=noise)) for noise in ("transfer", "gaussian")]
    assert same_bits(*found)


def test_gaussian_augmentation_has_the_local_spread(toy):
    algorithm = ReBaFL(noise="gaussian")
    _net, _, _own, context = started(toy, algorithm)
    h = torch.zeros(4000, 5)
    made = algorithm.augmented(h, torch.zeros(4000).long(), torch.ones(4000).long(), context)
    assert torch.allclose(made.mean(0), context.prepared["prototypes"][1], atol=0.05)
    assert torch.allclose(made.std(0), context.prepared["spread"], atol=0.05)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_hooks_are_pure(toy, name):
    """The same client computed twice, or after another client in the same network, gives the same bits."""
    algorithm = KINDS[name]()
    net, sent, _own, _ = started(toy, algorithm)
    kept = copy.deepcopy(sent)
    indices = (torch.arange(45, 75), torch.arange(100, 130), torch.arange(45, 75))
    uploads = [train(net, algorithm, sent, client(toy, index))[0] for index in indices]
    assert same_bits(uploads[0].change, uploads[2].change)
    assert same_bits(uploads[0].shared, uploads[2].shared)
    assert not same_bits(uploads[0].change, uploads[1].change)
    assert same_bits(sent.weights, kept.weights)
    assert same_bits(sent.extra, kept.extra)


def test_every_epoch_visits_every_sample_once_in_a_new_order(toy):
    steps = list(batches(client(toy, torch.arange(45, 75), epochs=2, batch=8)))
    assert [len(step.y) for step in steps] == [8, 8, 8, 6] * 2
    orders = [torch.cat([step.index for step in steps[a : a + 4]]) for a in (0, 4)]
    assert all(torch.equal(order.sort().values, torch.arange(30)) for order in orders)
    assert not torch.equal(*orders)


def test_crop_and_flip_are_windows_of_the_bordered_image():
    """Every transformed image must be found among the 2 x 81 possible ones, and both kinds must occur."""
    image = torch.arange(3 * 8 * 8, dtype=torch.float32).reshape(1, 3, 8, 8).repeat(40, 1, 1, 1)
    labels, fill = torch.zeros(40).long(), torch.tensor([-1.0, -2.0, -3.0])
    own = Client(
        0,
        image,
        labels,
        torch.tensor([40]),
        fill,
        Training(epochs=1, transform="crop-flip"),
        np.random.default_rng(0),
        np.random.default_rng(1),
    )
    (batch,) = batches(own)
    wide = fill[:, None, None].expand(3, 16, 16).clone()
    wide[:, 4:12, 4:12] = image[0]
    windows = [wide[:, r : r + 8, c : c + 8] for r in range(9) for c in range(9)]
    plain = {tuple(w.flatten().tolist()) for w in windows}
    mirrored = {tuple(w.flip(2).flatten().tolist()) for w in windows}
    found = [tuple(x.flatten().tolist()) for x in batch.x]
    assert all(x in plain or x in mirrored for x in found)
    assert 5 < sum(x in plain for x in found) < 35
    assert len(set(found)) > 25


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
                p -= 0.1 * velocity[name]
    for name, p in hand.named_parameters():
        assert torch.allclose(upload.change[name], p.detach() - sent.weights[name], atol=1e-6)
