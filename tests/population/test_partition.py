"""Partitions are what they say, repeat, end, and refuse what cannot be done."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebafl.base.errors import UserError
from rebafl.population.partition import Clustered, Dirichlet, Even, Iid, Pathological
from rebafl.population.splitting import KINDS

LABELS = np.repeat(np.arange(10), 60)
SEEDS = st.integers(0, 2**32)


def labels_of(sizes):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


@given(SEEDS, st.integers(1, 12), st.integers(1, 10), st.integers(10, 59))
def test_pathological_has_n_classes_and_the_remainder_in_one(seed, clients, classes, samples):
    split = Pathological(clients=clients, classes=classes, samples=samples).split(LABELS, 10, seed)
    for client in range(clients):
        indices, counts = split.indices(client), split.counts(client)
        held = np.sort(counts[counts > 0])
        assert len(set(indices)) == samples == counts.sum()
        assert len(held) == classes
        assert (held[:-1] == samples // classes).all()
        assert held[-1] == samples - (classes - 1) * (samples // classes)


@given(SEEDS)
def test_a_client_does_not_depend_on_the_others(seed):
    small = Pathological(clients=3, samples=20).split(LABELS, 10, seed)
    large = Pathological(clients=1000, samples=20).split(LABELS, 10, seed)
    assert np.array_equal(small.indices(2), large.indices(2))


def test_pathological_draws_all_classes_alike():
    held = (Pathological(clients=2000, samples=20).split(LABELS, 10, 1).table() > 0).sum(0)
    assert (abs(held - 400) < 5 * np.sqrt(2000 * 0.2 * 0.8)).all()


def test_clustered_groups_by_client_number():
    table = Clustered(clients=20, classes=(2, 2, 3, 3, 5), samples=50).split(LABELS, 10, 0).table()
    assert ((table > 0).sum(1) == np.tile([2, 2, 3, 3, 5], 4)).all()


@settings(deadline=None)
@given(SEEDS, st.lists(st.integers(1, 80), min_size=2, max_size=8), st.integers(1, 30), st.integers(1, 8))
def test_even_uses_every_sample_once_or_says_why_not(seed, sizes, clients, classes):
    labels = labels_of(sizes)
    possible = len(sizes) <= clients * classes <= sum(min(size, clients) for size in sizes)
    partition = Even(clients=clients, classes=classes)
    if not possible:
        with pytest.raises(UserError, match="partition"):
            partition.split(labels, len(sizes), seed)
        return
    split = partition.split(labels, len(sizes), seed)
    everything = np.concatenate([split.indices(client) for client in range(clients)])
    assert np.array_equal(np.sort(everything), np.arange(len(labels)))
    assert ((split.table() > 0).sum(1) == classes).all()


@pytest.mark.parametrize("clients", [100, 200, 500])
def test_even_is_even_in_the_scalability_study(clients):
    table = Even(clients=clients).split(labels_of([5000] * 10), 10, 0).table()
    assert (table.sum(1) == 50000 // clients).all()
    assert len({tuple(row > 0) for row in table}) > 30  # many different pairs, not one pattern repeated


@settings(deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.integers(1, 40), st.integers(1, 15))
def test_dirichlet_uses_every_sample_once_and_gives_everyone_enough(seed, alpha, clients, least):
    split = Dirichlet(clients=clients, alpha=alpha, least=least).split(LABELS, 10, seed)
    everything = np.concatenate([split.indices(client) for client in range(clients)])
    assert np.array_equal(np.sort(everything), np.arange(len(LABELS)))
    assert split.table().sum(1).min() >= least


def test_dirichlet_skews_as_alpha_says():
    skew = [Dirichlet(clients=10, alpha=a, least=1).split(LABELS, 10, 0).table().std() for a in (0.05, 1.0, 1000.0)]
    assert skew[0] > 2 * skew[1] > 4 * skew[2]


@given(SEEDS, st.integers(1, 600))
def test_iid_is_even_and_complete(seed, clients):
    split = Iid(clients=clients).split(LABELS, 10, seed)
    sizes = [len(split.indices(client)) for client in range(clients)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == 600


@pytest.mark.parametrize(
    "partition",
    [
        Pathological(classes=11), Pathological(samples=61, classes=1), Pathological(samples=1, classes=2),
        Clustered(classes=(2, 11)), Even(clients=2), Even(clients=1000), Dirichlet(clients=100), Iid(clients=601),
    ],
    ids=lambda p: p.name,
)  # fmt: skip
def test_the_impossible_is_refused_with_the_reason(partition):
    with pytest.raises(UserError, match="partition") as error:
        partition.split(LABELS, 10, 0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("file", "listed", "natural")])
def test_same_seed_same_split_other_seed_another(kind):
    partition = KINDS[kind](clients=10, **({"samples": 50} if kind in ("pathological", "clustered") else {}))
    splits = [partition.split(LABELS, 10, seed).table() for seed in (0, 0, 1)]
    assert np.array_equal(splits[0], splits[1])
    assert not np.array_equal(splits[0], splits[2])
