"""Rules that take the place of the mean: identities, cases by hand, a second implementation, and classic mistakes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rebafl.algorithms import robust
from rebafl.algorithms.aggregate import Means, Upload, means_of, moved, weighted_mean
from rebafl.algorithms.robust import Clip, Defence, Krum, Median, NoDefence, Trimmed, at_each_place, squared_distances
from rebafl.base.rng import generator
from support.toy import same_bits

RULES: list[Defence] = [Clip(), Trimmed(share=0.2), Median(), Krum(share=0.2)]
SHAPES = {"conv": (3, 2, 2, 2), "bias": (3,)}


def vectors(count: int, seed: int = 0):
    random = generator(seed, "robust")
    return [{n: torch.from_numpy(random.standard_normal(s)).float() for n, s in SHAPES.items()} for _ in range(count)]


def flat(vector):
    return np.concatenate([vector[name].double().numpy().ravel() for name in SHAPES])


def one(*values):
    return [{"w": torch.tensor(each, dtype=torch.float32).reshape(-1)} for each in values]


def value(rule: Defence, vectors, weights=None):
    return rule.combined(vectors, weights or [1.0] * len(vectors))["w"].tolist()


def uploads(count: int, seed: int = 0, holders=None):
    """Changes, prototypes by class, and variates; `holders` says who holds which of three classes."""
    random = generator(seed, "uploads")
    found = []
    for client, change in enumerate(vectors(count, seed)):
        counts = torch.tensor(
            [int(random.integers(1, 9)) * (holders is None or client in holders[c]) for c in range(3)]
        )
        shared = {"prototypes": torch.from_numpy(random.standard_normal((3, 4))).float() + 3,
                  "variates": torch.from_numpy(random.standard_normal(5)).float()}  # fmt: skip
        found.append(Upload(client, change, counts, shared))
    return found


def by(shared):
    return "classes" if shared == "prototypes" else "clients"


def lie(upload, times):
    return replace(
        upload,
        change={name: times * tensor for name, tensor in upload.change.items()},
        shared={name: times * tensor for name, tensor in upload.shared.items()},
    )


def all_of(means: Means):
    return {**means.change, **means.shared}


# --- identities


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_identical_uploads_give_the_mean(rule):
    (first,) = uploads(1)
    same = [replace(first, client=client) for client in range(7)]
    found, mean = rule.means(same, "samples", by), means_of(same, "samples", by)
    for name, tensor in all_of(mean).items():
        torch.testing.assert_close(all_of(found)[name], tensor, rtol=1e-14, atol=0)
    assert found.uploads == 7
    assert torch.equal(found.counts, mean.counts)


@pytest.mark.parametrize("rule", [NoDefence(), Trimmed(share=0.0)], ids=lambda rule: rule.name)
def test_trimming_nothing_is_the_mean_bit_for_bit(rule):
    given = uploads(9, holders=[range(9), range(2), [4]])
    found, mean = rule.means(given, "samples", by), means_of(given, "samples", by)
    assert same_bits(found.change, mean.change)
    if rule.name == "trimmed":
        assert same_bits(found.shared, mean.shared)


def test_clipping_vectors_of_one_length_is_the_mean_bit_for_bit():
    same = [{"w": t} for t in torch.tensor([[3.0, 4.0], [-5.0, 0.0], [4.0, -3.0]])]
    assert torch.equal(Clip().combined(same, [1, 2, 3])["w"], weighted_mean(same, [1, 2, 3])["w"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_blocks_and_the_order_of_clients_change_no_bit(rule, monkeypatch):
    given, weights = vectors(8), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    whole = rule.combined(given, weights)
    monkeypatch.setattr(robust, "ROOM", 24)  # three columns at a time
    assert same_bits(rule.combined(given, weights), whole)
    backwards = rule.combined(given[::-1], weights[::-1])
    for name in SHAPES:
        exact = 0 if rule.name in ("trimmed", "median") else 1e-15
        torch.testing.assert_close(backwards[name], whole[name], rtol=exact, atol=exact)


@pytest.mark.parametrize("count", [3, 50, 2000])
def test_memory_does_not_grow_with_the_uploads(count):
    """However many there are, few numbers are compared at a time."""
    wide, sizes = {"w": torch.zeros(100_000)}, []

    def rule(values):
        sizes.append(values.numel())
        return values[0]

    assert at_each_place([wide] * count, rule)["w"].shape == (100_000,)
    assert max(sizes) <= robust.ROOM
    assert sum(sizes) == count * 100_000


# --- by hand


def test_clip_by_hand():
    """Lengths 5, 10 and 1: the median is 5, so that the second is halved."""
    given = [{"w": t} for t in torch.tensor([[3.0, 4.0], [-6.0, 8.0], [0.0, -1.0]])]
    assert value(Clip(), given) == pytest.approx([0.0, (4 + 4 - 1) / 3])
    assert value(Clip(), given, [1.0, 2.0, 1.0]) == pytest.approx([(3 - 6) / 4, (4 + 8 - 1) / 4])


def test_clip_takes_the_lower_of_two_middle_lengths():
    """Their mean would hand half of the bound to whoever is longest."""
    assert value(Clip(), one(1, 1e6)) == [1.0]
    assert value(Clip(), one(1, 2, -1e6, 1e6)) == pytest.approx([(1 + 2 - 2 + 2) / 4])


def test_trimmed_by_hand():
    """One of five is cut at each end, and the rest weighs as it does."""
    given = one([-100, 1], [1, 2], [2, 3], [3, 400], [500, 5])
    assert value(Trimmed(share=0.2), given) == pytest.approx([2.0, 10 / 3])
    assert value(Trimmed(share=0.2), given, [9, 1, 1, 2, 9]) == pytest.approx([(1 + 2 + 6) / 4, (2 + 3 + 45) / 11])


@pytest.mark.parametrize(
    ("share", "count", "cut"),
    [(0.2, 10, 2), (0.2, 9, 2), (0.2, 3, 1), (0.2, 2, 0), (0.07, 100, 7), (0.49, 4, 1), (0.1, 1, 0)],
)
def test_how_many_are_cut(share, count, cut):
    """As many as may lie, rounded up, as long as one is left."""
    values = [float(each) for each in range(count)]
    values[-cut or count :] = [1e9] * cut
    rest = values[cut : count - cut]
    assert value(Trimmed(share=share), one(*values)) == pytest.approx([sum(rest) / len(rest)])


def test_median_by_hand():
    assert value(Median(), one([1, 9], [7, -3], [2, 4])) == [2.0, 4.0]
    assert value(Median(), one(1, 100, 2, 4)) == [3.0]
    assert value(Median(), one(1, 3, 5), [1000, 1, 1]) == [3.0], "who claims many samples has one voice all the same"


def test_krum_by_hand():
    """Seven on a line and one liar: each looks at its four nearest others (8 - 2 - 2)."""
    given = one(0, 1, 2, 3, 4, 5, 60, 61)
    # scores: 0: 1+4+9+16=30, 1: 1+1+4+9=15, 2: 1+1+4+4=10, 3: 10, 4: 15, 5: 30; the others are far above
    assert Krum(share=0.25, keep=1).chosen(given) == [2]
    assert Krum(share=0.25, keep=3).chosen(given) == [1, 2, 3], "of 1 and 4, which are alike, the first"
    assert Krum(share=0.25).chosen(given) == [0, 1, 2, 3, 4, 5]
    assert value(Krum(share=0.25), given, [1, 1, 1, 1, 1, 5, 9, 9]) == [3.5]


# --- a second implementation


def second_clip(rows, weights):
    lengths = sorted(math.dist(row, [0.0] * len(row)) for row in rows)
    bound = lengths[(len(rows) - 1) // 2]
    clipped = [row * min(1.0, bound / np.linalg.norm(row)) for row in rows]
    return np.average(clipped, axis=0, weights=weights)


def second_trimmed(rows, weights):
    cut = math.ceil(0.2 * len(rows))
    result = []
    for column in zip(*rows, strict=True):
        kept = sorted(zip(column, weights, strict=True))[cut:-cut]
        result.append(sum(x * w for x, w in kept) / sum(w for _, w in kept))
    return np.array(result)


def second_krum(rows, weights):
    count = len(rows)
    liars = min(math.ceil(0.2 * count), (count - 3) // 2)
    scores = []
    for i in range(count):
        others = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(count) if j != i)
        scores.append((sum(others[: count - liars - 2]), i))
    best = [i for _, i in sorted(scores)[: count - liars]]
    return np.average([rows[i] for i in best], axis=0, weights=[weights[i] for i in best])


SECOND = {"clip": second_clip, "trimmed": second_trimmed, "krum": second_krum,
          "median": lambda rows, weights: np.median(rows, axis=0)}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("count", [5, 8, 11])
def test_a_second_implementation_agrees(rule, count):
    for seed in range(5):
        given = vectors(count, seed)
        given[1] = {name: -5 * tensor for name, tensor in given[1].items()}
        weights = generator(seed, "weights").integers(1, 100, count).astype(float).tolist()
        expected = SECOND[rule.name]([flat(vector) for vector in given], weights)
        np.testing.assert_allclose(flat(rule.combined(given, weights)), expected, rtol=0, atol=1e-12)


def test_distances():
    given = vectors(6)
    for i, a in enumerate(given):
        for j, b in enumerate(given):
            assert float(squared_distances(given)[i, j]) == pytest.approx(((flat(a) - flat(b)) ** 2).sum())


# --- what is shared, and who holds what


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_all_that_is_shared_is_protected(rule):
    """Two of ten lie about everything: each part stays among the honest values; the mean does not."""
    honest = uploads(10)
    given = [lie(each, -1e6) if each.client in (3, 8) else each for each in honest]
    found, mean = rule.means(given, "samples", by), means_of(given, "samples", by)
    for name in ("conv", "bias", "prototypes", "variates"):
        assert float(all_of(mean)[name].abs().max()) > 1e4
        assert float(all_of(found)[name].abs().max()) < 10, name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_class_is_combined_among_its_holders_alone(rule):
    """Others' rows, which are zero, or lies, do not count: not in the median, nor as neighbours."""
    holders = [[0, 1, 2, 3, 4], range(9), [7, 8, 2]]
    given = uploads(9, holders=holders)
    table = rule.means(given, "samples", by).shared["prototypes"]
    for label, who in enumerate(holders):
        rows = [{"w": given[c].shared["prototypes"][label]} for c in sorted(who)]
        weights = [float(given[c].counts[label]) for c in sorted(who)]
        assert table[label].tolist() == rule.combined(rows, weights)["w"].tolist()
    tables = [torch.where(each.counts[:, None] > 0, each.shared["prototypes"], 1e9) for each in given]
    noisy = [replace(u, shared={**u.shared, "prototypes": t}) for u, t in zip(given, tables, strict=True)]
    assert torch.equal(rule.means(noisy, "samples", by).shared["prototypes"], table)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_one_or_two_holders_are_averaged_and_kept_short(rule):
    """Nobody can tell which of two lies; at twice the median length of all rows they do little harm."""
    given = uploads(9, holders=[range(9), [4], [5, 6]])
    expected = means_of(given, "samples", by).shared["prototypes"]
    table = rule.means(given, "samples", by).shared["prototypes"]
    torch.testing.assert_close(table[1:], expected[1:], rtol=1e-14, atol=0)
    lying = [lie(each, -1e6) if each.client in (4, 5) else each for each in given]
    rows = [u.shared["prototypes"][c].norm() for u in given for c in range(3) if u.counts[c] > 0]
    table = rule.means(lying, "samples", by).shared["prototypes"]
    assert float(table[1:].norm(dim=1).max()) <= 2.01 * float(torch.stack(rows).max())


def test_a_class_without_holders_has_zeros():
    given = uploads(5, holders=[range(5), [], []])
    for rule in RULES:
        found = rule.means(given, "samples", by)
        assert not found.shared["prototypes"][1:].any()
        assert found.counts[1:].tolist() == [0, 0]


def test_what_has_no_weight_is_left_out():
    found = Median().means(uploads(5), "clients", lambda name: "clients" if name == "variates" else None)
    assert found.shared.keys() == {"variates"}


def test_changes_by_class_are_combined_by_class():
    given = [replace(u, change={"head": u.shared["prototypes"]}) for u in uploads(6, holders=[range(6), range(6), [0]])]
    found = Median().means(given, "classes", lambda name: None)
    assert torch.equal(found.change["head"], Median().means(given, "samples", by).shared["prototypes"])


# --- classic mistakes


def test_a_median_of_weights_would_be_that_of_changes():
    """The weights that were sent cancel out, but only if the median is taken of changes, in float64, and cast once."""
    sent, given = {"w": torch.tensor([16777216.0])}, one(1.0, 1.25, 2.0)
    assert moved(sent, Median().combined(given, [1.0] * 3))["w"].item() == 16777218.0
    local = [{"w": sent["w"] + each["w"]} for each in given]
    assert [each["w"].item() for each in local] == [16777216.0, 16777218.0, 16777218.0], "float32 has lost the changes"


def test_clipping_the_mean_would_not_help():
    """Each upload is clipped, not what comes out: the liar's direction would win."""
    given = one([1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1000.0, 0.0])
    assert value(Clip(), given)[0] > 0.4
    assert weighted_mean(given, [1.0] * 4)["w"][0] < 0


def test_counters_do_not_hide_a_long_change():
    """A counter of 600 batches would make all changes look alike."""
    given = [{"w": torch.tensor([each]), "n": torch.tensor(600 + i)} for i, each in enumerate([1.0, 1.0, 1.0, -100.0])]
    found = Clip().combined(given, [1.0] * 4)
    assert found["w"].item() == pytest.approx(0.5)
    assert list(found) == ["w", "n"]
    assert found["n"].item() == pytest.approx((600 + 3 * 601) / 4), "by themselves, counters are shortened too"
    assert float(squared_distances(given)[0, 1]) == 0.0


def test_krum_does_not_count_itself():
    """Its distance to itself, zero, would take the place of a neighbour's, and a pair of liars would win."""
    given = one(0, 0.1, 5, 5.2, 5.4)
    assert Krum(share=0.2, keep=1).chosen(given) == [3]
    with_itself = squared_distances(given).sort(dim=1).values[:, :2].sum(1)
    assert int(with_itself.argmin()) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_krum_leaves_nobody_out_where_nobody_can_be_told(count):
    assert Krum(share=0.4).chosen(one(*range(count))) == list(range(count))


def test_of_equal_values_those_of_the_first_clients_are_cut():
    """Their weights differ, so that it must not depend on how a sort puts them."""
    given, weights = one(1, 1, 1, 2, 3), [5.0, 1.0, 1.0, 1.0, 1.0]
    assert value(Trimmed(share=0.2), given, weights) == pytest.approx([4 / 3])
