"""Class Gaussians: by hand, against an independent discriminant analysis, and how absent classes are carried along."""

import numpy as np
import pytest
import torch

from rebafl.algorithms import class_gaussians
from rebafl.algorithms.class_gaussians import (
    UNCERTAINTY,
    UNKNOWN,
    Gaussians,
    carried,
    first_guess,
    linear_head,
    track,
    within_class_scatter,
)
from rebafl.algorithms.prototypes import class_prototypes


def packed(matrix):
    rows, columns = torch.triu_indices(len(matrix), len(matrix))
    return matrix[rows, columns]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_scatter_by_hand():
    features = torch.tensor([[0.0, 0.0], [2.0, 4.0], [5.0, 5.0]])
    labels = torch.tensor([0, 0, 1])
    means = class_prototypes(features, labels, 2)
    # around (1, 2): (-1, -2) and (1, 2); around (5, 5): nothing; over three samples
    assert torch.allclose(within_class_scatter(features, labels, means), torch.tensor([2.0, 4.0, 8.0]) / 3)


def test_the_first_round_is_taken_as_it_is():
    seen, scatter = random(3, 2), torch.eye(2, dtype=torch.float64)
    means, variance, whole = track(first_guess(3, 2), seen, torch.tensor([4, 0, 1]), packed(scatter))
    assert torch.equal(means[[0, 2]], seen[[0, 2]])
    assert not means[1].any()
    assert torch.allclose(variance, torch.tensor([1 / 4, UNKNOWN, 1.0], dtype=torch.float64))
    assert torch.equal(whole, scatter)


def test_a_mean_that_is_seen_again_is_averaged_by_its_precision():
    """One class, so that nothing but a shift can be carried: the gain is left."""
    before = Gaussians(torch.zeros(1, 1).double(), torch.tensor([0.25]).double(), torch.ones(1, 1).double())
    means, variance, _ = track(before, torch.ones(1, 1).double(), torch.tensor([2]), torch.ones(1).double())
    assert means.item() == pytest.approx(1.0), "the shift of the only class carries it all the way"
    assert variance.item() == pytest.approx(1 / (2 + 1 / (0.25 + UNCERTAINTY)))


def test_absent_classes_share_a_common_shift():
    before = random(4, 6)
    moved = before + random(1, 6, seed=1)
    scatter = random(6, 6, seed=3)
    scatter = scatter @ scatter.T
    means, turned = carried(before, scatter, before[:3], moved[:3])
    assert torch.allclose(means, moved, atol=1e-10)
    assert torch.allclose(turned, scatter, atol=1e-10)  # a shift changes no covariance


def test_absent_classes_follow_a_linear_map_within_the_span(monkeypatch):
    """Without a ridge, a map of the space is found from as many classes as it has dimensions, and one."""
    monkeypatch.setattr(class_gaussians, "RIDGE", 0.0)
    before, matrix = random(6, 3), random(3, 3, seed=2)
    after = before @ matrix + 1.0
    scatter = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    means, turned = carried(before, scatter, before[:4], after[:4])
    assert torch.allclose(means, after, atol=1e-8)
    assert torch.allclose(turned, matrix.T @ scatter @ matrix, atol=1e-8)


def by_the_page(before, seen, counts, fresh):
    """One round as docs/algorithms/fedtrack.md writes it, class by class and with explicit inverses, in numpy.

    `before`: the mean and the number of images it is worth (None: never seen), by class, and Σ.
    """
    means, worth, sigma = before
    known = [c for c in range(len(means)) if worth[c] is not None]
    both = [c for c in known if counts[c] > 0]
    means = [mean.copy() for mean in means]
    if both:
        ball = 0.003 * np.trace(sigma) / len(sigma) * np.eye(len(sigma))
        precision = np.linalg.inv(sigma + ball)
        x = np.array([means[c] for c in both])
        moved = np.array([seen[c] for c in both]) - x
        x_bar, d = x.mean(0), moved.mean(0)
        g = (x - x_bar) @ precision @ (x - x_bar).T
        ridge = 0.1 * np.trace(g) / len(both)
        a = np.eye(len(sigma)) + precision @ (x - x_bar).T @ np.linalg.pinv(g + ridge * np.eye(len(both))) @ (moved - d)
        for c in known:
            means[c] = x_bar + d + (means[c] - x_bar) @ a
        sigma = a.T @ sigma @ a
    worth = [None if n is None else 1 / (1 / n + 1 / 1000) for n in worth]
    for c, n in enumerate(counts):
        if n and worth[c] is None:
            means[c], worth[c] = seen[c], n
        elif n:
            means[c] = (worth[c] * means[c] + n * seen[c]) / (worth[c] + n)
            worth[c] = worth[c] + n
    return means, worth, 0.8 * sigma + 0.2 * fresh if known else fresh


def test_eight_rounds_as_the_page_writes_them():
    """Classes come and go; one is never seen, one is seen once and then carried along."""
    there = [(0, 1, 2), (1, 3), (0, 1, 3, 4), (2, 3), (4,), (0, 1), (0, 2, 3), (1, 4)]
    ours, theirs = first_guess(6, 3), ([np.zeros(3)] * 6, [None] * 6, np.zeros((3, 3)))
    for number, classes in enumerate(there):
        counts = [100 + 7 * c if c in classes else 0 for c in range(6)]
        seen, root = random(6, 3, seed=number) + torch.arange(6)[:, None], random(3, 3, seed=50 + number)
        fresh = root @ root.T
        ours = track(ours, seen, torch.tensor(counts), packed(fresh))
        theirs = by_the_page(theirs, seen.numpy(), counts, fresh.numpy())
    assert np.allclose(ours.means, np.array(theirs[0]), atol=1e-9)
    assert np.allclose(ours.scatter, theirs[2], atol=1e-9)
    assert np.allclose(ours.variance, [UNKNOWN if n is None else 1 / n for n in theirs[1]])


def test_the_longer_unseen_the_less_a_mean_counts():
    """Two classes are always seen; the third returns after one round, or after fifty, at another place."""
    start = track(first_guess(3, 2), random(3, 2), torch.tensor([50, 50, 50]), packed(torch.eye(2).double()))
    kept = []
    for absent in (1, 50):
        state = start
        for _ in range(absent):
            state = track(state, start.means, torch.tensor([50, 50, 0]), packed(torch.eye(2).double()))
        place = start.means.clone()
        place[2] += 1.0
        kept.append(float((track(state, place, torch.tensor([0, 0, 5]), packed(torch.eye(2).double())).variance)[2]))
    assert kept[0] < kept[1]


def test_the_head_is_that_of_discriminant_analysis():
    """Against the densities of the Gaussians themselves."""
    means, half = random(4, 3), random(3, 3, seed=3)
    scatter = half @ half.T + torch.eye(3)
    like = {"head.weight": torch.zeros(4, 3).double(), "head.bias": torch.zeros(4).double()}
    head = linear_head(Gaussians(means, torch.full((4,), 0.1).double(), scatter), like)
    x = random(50, 3, seed=4)
    logits = (x @ head["head.weight"].T + head["head.bias"]).numpy()
    shrunk = scatter.numpy() + class_gaussians.SHRINK * np.diag(scatter.numpy()).mean() * np.eye(3)
    apart = x.numpy()[:, None] - means.numpy()
    densities = -0.5 * np.einsum("ncd,de,nce->nc", apart, np.linalg.inv(shrunk), apart)
    expected = densities - densities[:, :1]
    assert np.allclose(logits - logits[:, :1], expected, atol=1e-8)


def test_a_class_that_was_never_seen_is_never_chosen():
    like = {"head.weight": torch.zeros(3, 2), "head.bias": torch.zeros(3)}
    known = Gaussians(random(3, 2), torch.tensor([0.1, UNKNOWN, 0.1]).double(), torch.eye(2).double())
    head = linear_head(known, like)
    assert head["head.weight"].dtype == torch.float32
    logits = 3 * random(200, 2).float() @ head["head.weight"].T + head["head.bias"]
    assert set(logits.argmax(1).tolist()) == {0, 2}


def test_a_head_without_bias_decides_nearly_the_same():
    """Features far from the origin, as those of the networks are: a direction takes the constant's place."""
    means, scatter = random(4, 8) + 5, 0.05 * torch.eye(8).double()
    gaussians = Gaussians(means, torch.full((4,), 0.1).double(), scatter)
    with_bias = linear_head(gaussians, {"head.weight": torch.zeros(4, 8), "head.bias": torch.zeros(4)})
    without = linear_head(gaussians, {"head.weight": torch.zeros(4, 8)})
    x = (means.repeat(100, 1) + scatter.sqrt().diagonal() * random(400, 8, seed=5)).float()
    chosen = (x @ with_bias["head.weight"].T + with_bias["head.bias"]).argmax(1)
    assert float((chosen == (x @ without["head.weight"].T).argmax(1)).float().mean()) > 0.98
