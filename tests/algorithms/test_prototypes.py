import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from rebafl import class_prototypes, transfer_features
from rebafl.algorithms.aggregate import Upload, means_of
from rebafl.algorithms.prototypes import cycled_targets, within_class_std


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_means_by_hand():
    table = class_prototypes(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]), torch.tensor([2, 2, 0]), 3)
    assert torch.equal(table, torch.tensor([[5.0, 0.0], [0.0, 0.0], [2.0, 3.0]]))


def pooled(tables, counts):
    uploads = [Upload(0, {}, held, {"prototypes": table}) for table, held in zip(tables, counts, strict=True)]
    means = means_of(uploads, "samples", lambda name: "classes")
    return means.shared["prototypes"], means.counts


@given(st.integers(0, 2**31), st.permutations(range(4)))
def test_aggregated_prototypes_are_the_pooled_means_in_any_order(seed, order):
    """Equal extractors: it must not matter which client held which sample. Unweighted means would be noticed."""
    features, labels = random(40, 3, seed=seed), torch.arange(40) % 7 % 3
    cuts = [0, 5, 12, 13, 40]
    parts = [(features[a:b], labels[a:b]) for a, b in itertools.pairwise(cuts)]
    tables = [class_prototypes(x, y, 3) for x, y in parts]
    counts = [y.bincount(minlength=3) for _, y in parts]
    table, mass = pooled([tables[i] for i in order], [counts[i] for i in order])
    assert torch.allclose(table, class_prototypes(features, labels, 3), atol=1e-10)
    assert torch.equal(mass, labels.bincount(minlength=3))


def test_a_class_that_nobody_holds_has_no_mass():
    table, mass = pooled([torch.ones(3, 2)], [torch.tensor([4, 0, 1])])
    assert mass.tolist() == [4, 0, 1]
    assert table[1].tolist() == [0, 0]


def test_transfer_identities():
    h, labels, table = random(6, 4), torch.tensor([0, 1, 0, 1, 1, 0]), random(3, 4, seed=1)
    targets = torch.tensor([2, 2, 1, 0, 2, 1])
    assert torch.allclose(transfer_features(h, labels, table, targets, lam=0.0), table[targets], atol=1e-10)
    assert torch.allclose(transfer_features(h, labels, table, labels, lam=1.0), h, atol=1e-10)
    by_hand = table[2] + 0.5 * (h[0] - table[0])
    assert torch.allclose(transfer_features(h, labels, table, targets, lam=0.5)[0], by_hand, atol=1e-10)


def test_over_a_whole_class_the_augmented_mean_is_the_target():
    h, labels = random(9, 4), torch.zeros(9, dtype=torch.int64)
    table = class_prototypes(h, labels, 2) + torch.tensor([[0.0], [3.0]])
    moved = transfer_features(h, labels, table, torch.ones(9, dtype=torch.int64))
    assert torch.allclose(moved.mean(0), table[1], atol=1e-10)


def test_transfer_stops_the_gradient():
    h = random(3, 2).requires_grad_()
    assert not transfer_features(
        h, torch.zeros(3, dtype=torch.int64), torch.zeros(2, 2), torch.ones(3).long()
    ).requires_grad


def test_targets_cycle_over_the_available_classes_by_position():
    assert cycled_targets(torch.tensor([1, 4, 7]), 7).tolist() == [1, 4, 7, 1, 4, 7, 1]


def test_spread_by_hand():
    spread = within_class_std(
        torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1]), torch.tensor([[2.0], [10.0]])
    )
    assert torch.allclose(spread, torch.tensor([(2 / 3) ** 0.5]))
