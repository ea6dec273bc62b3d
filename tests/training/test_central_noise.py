"""How far one client can move the mean: the bound that central noise is measured by, found by trying."""

import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms.aggregate import Upload, weighted_mean
from rebafl.base.rng import seeded_noise, system_noise
from rebafl.training.central_noise import mean_deviation, with_central_noise
from rebafl.training.protections import Protections

BOUND = 0.7
PROTECT = Protections(update_clip=BOUND, central_noise=3.0, counts="withheld")


def clipped(random, width=5):
    vector = torch.randn(width, generator=random).double()
    return vector * BOUND / vector.norm() * float(torch.rand(1, generator=random) < 0.8 or 0.3)


def moves(weighted, clients=4, times=3000):
    """How far replacing all data of one client moves the mean, over many tries; some point the opposite way."""
    random = torch.Generator().manual_seed(0)
    found = []
    for turn in range(times):
        changes = [clipped(random) for _ in range(clients)]
        other = -changes[0] if turn % 2 else clipped(random)
        sizes = [torch.randint(1, 100, (1,), generator=random).item() if weighted else 1 for _ in range(clients)]
        size = torch.randint(1, 100, (1,), generator=random).item() if weighted else 1
        before = weighted_mean([{"w": change} for change in changes], sizes)["w"]
        after = weighted_mean([{"w": change} for change in [other, *changes[1:]]], [size, *sizes[1:]])["w"]
        found.append(float((after - before).norm()))
    return max(found)


def test_with_equal_weights_one_client_moves_the_mean_by_two_bounds_over_m_at_most():
    bound = mean_deviation(PROTECT, clients=4) / PROTECT.central_noise
    assert bound == pytest.approx(2 * BOUND / 4)
    assert moves(weighted=False) == pytest.approx(bound), "and no bound is wasted"


def test_with_sample_weights_it_moves_further_so_that_these_are_refused():
    assert moves(weighted=True) > 1.5 * 2 * BOUND / 4
    with pytest.raises(UserError, match=r"do not depend on data; set protect\.counts=withheld"):
        make_settings({"protect": {"update_clip": 1.0, "central_noise": 1.0}})


@pytest.mark.parametrize("noise", [seeded_noise(0, 1, -1), system_noise], ids=["seed", "system"])
def test_each_change_is_shifted_alike_and_only_as_far_as_said(noise):
    counters = {"steps": torch.tensor([3])}
    uploads = [Upload(n, {"w": torch.full((40, 50), float(n)), **counters}, torch.tensor([1])) for n in range(5)]
    shifted = with_central_noise(PROTECT, uploads, 5, noise)
    drawn = [(upload.change["w"] - before.change["w"]) for upload, before in zip(shifted, uploads, strict=True)]
    assert all(torch.allclose(one, drawn[0]) for one in drawn)
    assert drawn[0].std() == pytest.approx(2 * BOUND * 3.0 / 5, rel=4 / (2 * 2000) ** 0.5)
    assert torch.equal(shifted[0].change["steps"], counters["steps"])
    assert len(shifted[0].change) == 2
    mean = weighted_mean([u.change for u in shifted], [1] * 5)["w"]
    assert torch.allclose(mean, 2.0 + drawn[0], atol=1e-9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"central_noise": 1.0}, r"set protect\.update_clip as well\.$"),
        ({"central_noise": 1.0, "update_clip": 1.0, "update_noise": 1.0}, r"choose one of them\.$"),
        ({"holders": "announced"}, r"set protect\.min_holders as well\.$"),
        ({"holders": "announced", "min_holders": 2, "clip": 1.0, "noise": 1.0}, r"choose protect\.holders=aggregator"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(values, message):
    with pytest.raises(UserError, match=message):
        make_settings({"protect": values})


def test_old_protected_runs_keep_their_digest():
    assert "holders" not in make_settings({"protect": {"min_count": 5}}).identity()["protect"]
    assert "central_noise" not in make_settings({"protect": {"min_count": 5}}).identity()["protect"]
