"""ReBaFL: its identities, its loss by hand, its prototypes and targets."""

import pytest
import torch

from rebafl.algorithms.interface import Batch, Server
from rebafl.algorithms.rebafl import ReBaFL
from rebafl.training.loop import train
from support.methods import run_method, started
from support.toy import same_bits, weights


def test_rebafl_without_both_parts_is_fedavg(tmp_path, toy):
    assert same_bits(
        weights(run_method(tmp_path, toy, "rebafl", mu=0.0, eps=1.0)), weights(run_method(tmp_path, toy, "fedavg"))
    )


def test_rebafl_with_eps_zero_and_no_augmentation_is_bsm(tmp_path, toy):
    assert same_bits(
        weights(run_method(tmp_path, toy, "rebafl", mu=0.0, eps=0.0)), weights(run_method(tmp_path, toy, "bsm-fedavg"))
    )


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
    assert missing.prepared["targets"].unique().tolist() == [2]


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
    found = [weights(run_method(tmp_path, toy, "rebafl", lam=0.0, noise=noise)) for noise in ("transfer", "gaussian")]
    assert same_bits(*found)


def test_gaussian_augmentation_has_the_local_spread(toy):
    algorithm = ReBaFL(noise="gaussian")
    _net, _, _own, context = started(toy, algorithm)
    h = torch.zeros(4000, 5)
    made = algorithm.augmented(h, torch.zeros(4000).long(), torch.ones(4000).long(), context)
    assert torch.allclose(made.mean(0), context.prepared["prototypes"][1], atol=0.05)
    assert torch.allclose(made.std(0), context.prepared["spread"], atol=0.05)
