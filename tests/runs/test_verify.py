"""Recorded and repeated values are compared to the bit."""

from typing import Any

import pytest

from rebafl.runs.verify import Difference, compare


def test_values_are_compared_by_their_text():
    numbers: dict[str, list[Any]] = {
        "loss": [0.1, 0.30000000000000004],
        "recall": [[1.0, None], [2.0, 3.0]],
        "seconds": [1, 2],
    }
    repeated: dict[str, list[Any]] = {
        "loss": [0.1, 0.3],
        "recall": [[1.0, None], [2.0, 5.0]],
        "seconds": [8, 9],
        "new": [1, 1],
    }
    first, largest = compare(numbers, repeated, 2)
    assert first == Difference(2, "loss", 0.30000000000000004, 0.3)
    assert largest == {"loss": pytest.approx(5.5e-17, rel=0.1), "recall": 2.0}
    assert compare(numbers, repeated, 1) == (None, {})
    assert compare({"a": [0.0]}, {"a": [-0.0]}, 1)[0] is not None
    assert compare({"a": [None]}, {"a": [1.0]}, 1) == (Difference(1, "a", None, 1.0), {"a": None})
    assert compare({"a": [{"1": "late"}]}, {}, 1) == (Difference(1, "a", {"1": "late"}, None), {"a": None})
