from typing import Any

import pytest
import torch

from rebafl.algorithms.aggregate import Upload, moved, refusal, weighted_mean
from rebafl.training.evaluate import diversity

GOOD = {"w": torch.ones(2, 3)}
COUNTS = torch.tensor([4, 0, 6])


def upload(change=GOOD, counts=COUNTS, shared=None):
    return Upload(3, change, counts, shared or {})


def judge(candidate, shared=None):
    return refusal(candidate, GOOD, shared or {}, classes=3, most_samples=100)


def test_mean_by_hand():
    mean = weighted_mean([{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([5.0, -2.0])}], [1, 3])
    assert mean["w"].tolist() == [4.0, -1.0]
    assert moved({"w": torch.tensor([10.0, 0.0])}, mean)["w"].tolist() == [14.0, -1.0]


def test_accumulation_is_in_float64_and_cast_once():
    """In float32 the small ones would vanish beside the large one."""
    parts = [{"w": torch.tensor([v])} for v in (2.0**25, 1.0, 1.0, -(2.0**25))]
    assert weighted_mean(parts, [1, 1, 1, 1])["w"].item() == 0.5


def test_counters_are_rounded_and_what_does_not_change_stays():
    weights = {"n": torch.tensor(7), "frozen": torch.ones(1)}
    result = moved(weights, weighted_mean([{"n": torch.tensor(2)}, {"n": torch.tensor(3)}], [1, 3]))
    assert result["n"].item() == 10
    assert result["n"].dtype == torch.int64
    assert result["frozen"] is weights["frozen"]


def test_diversity_by_hand_and_zero_for_identical_clients():
    a, b = {"w": torch.tensor([0.0, 0.0])}, {"w": torch.tensor([2.0, 4.0])}
    assert diversity([a, b], a) == pytest.approx(5.0)
    assert diversity([b, b, b], b) == 0.0


def test_a_good_upload_is_taken():
    assert judge(upload()) is None
    assert judge(upload(shared={"p": torch.ones(2)}), {"p": torch.zeros(2)}) is None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (upload({"w": torch.full((2, 3), float("nan"))}), "NaN"),
        (upload({"w": torch.full((2, 3), float("inf"))}), "NaN or infinity"),
        (upload({"w": torch.ones(3, 2)}), "w is"),
        (upload({"w": torch.ones(2, 3, dtype=torch.float64)}), "w is"),
        (upload({}), "missing or unknown w"),
        (upload({**GOOD, "v": torch.ones(1)}), "unknown v"),
        (upload(counts=torch.tensor([4, -1, 6])), "impossible"),
        (upload(counts=torch.tensor([0, 0, 0])), "impossible"),
        (upload(counts=torch.tensor([101, 0, 0])), "impossible"),
        (upload(counts=torch.tensor([2**62, 2**63 - 1, 2**62 + 101])), "impossible"),  # 100, as a sum of int64
        (upload(counts=torch.tensor([1, 2])), "counts"),
        (upload(counts=torch.tensor([1.0, 2.0, 3.0])), "counts"),
        (upload(shared={"p": torch.ones(2)}), "shared"),
    ],
)
def test_a_bad_upload_is_refused_with_the_reason(bad, reason):
    assert reason in judge(bad)


@pytest.mark.parametrize("value", [3e38, -1e30, 1e6 + 1, -(2**63)])
def test_no_number_may_be_too_large(value):
    kind = torch.int64 if isinstance(value, int) else torch.float32
    large, like = {"w": torch.tensor([[0, value]]).to(kind)}, {"w": torch.zeros(1, 2, dtype=kind)}
    bounds: dict[str, Any] = {"classes": 3, "most_samples": 100, "most_value": 1e6}
    assert "weights: w holds a value of" in refusal(upload(large), like, {}, **bounds)
    assert "shared values: w holds a value of" in refusal(upload(shared=large), GOOD, like, **bounds)
    assert refusal(upload({**GOOD, "empty": torch.ones(0)}), {**GOOD, "empty": torch.ones(0)}, {}, **bounds) is None


def test_bytes_count_all_that_is_sent():
    assert upload(shared={"p": torch.ones(5)}).bytes == 6 * 4 + 3 * 8 + 5 * 4
