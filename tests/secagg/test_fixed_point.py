"""Fixed point: what is encoded comes back to the resolution, sums are exact in any order, nothing can overflow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebafl.secagg.abort import Abort
from rebafl.secagg.fixed_point import MOST_NUMBERS, Layout, Part, plain_sum

BITS, BOUND, CLIENTS = 20, 1000.0, 20


def layout(bits=BITS, bound=BOUND, clients=CLIENTS, shape=(3,)):
    return Layout((Part("w", shape, bits, bound),), clients)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_comes_back_to_half_of_the_last_bit(dtype):
    values = np.random.default_rng(0).uniform(-BOUND, BOUND, (50, 3)).astype(dtype)
    small = layout(shape=(50, 3))
    back = small.decode(small.encode({"w": values}), 1)["w"]
    assert back.shape == values.shape
    assert np.abs(back - values.astype(np.float64)).max() <= 2.0**-BITS / 2


def test_by_hand():
    words = layout(bits=1).encode({"w": np.array([1.0, -0.5, 0.25])})
    assert words.tolist() == [2, 2**64 - 1, 0]  # half to even


@given(st.lists(st.lists(st.floats(-BOUND, BOUND), min_size=3, max_size=3), min_size=1, max_size=8), st.randoms())
@settings(max_examples=100, deadline=None)
def test_a_sum_is_that_of_the_integers_in_any_order(rows, random):
    vectors = [layout().encode({"w": np.array(row)}) for row in rows]
    shuffled = list(vectors)
    random.shuffle(shuffled)
    total = plain_sum(vectors)
    assert np.array_equal(total, plain_sum(shuffled))
    expected = [sum(round(value * 2**BITS) for value in column) for column in zip(*rows, strict=True)]
    assert (layout().decode(total, len(rows))["w"] * 2**BITS).tolist() == expected


def test_the_largest_values_of_all_clients_do_not_overflow():
    tight = layout(bits=30, bound=2.0**28, clients=31)
    for sign in (1, -1):
        total = plain_sum([tight.encode({"w": np.full(3, sign * 2.0**28)})] * 31)
        assert tight.decode(total, 31)["w"].tolist() == [sign * 31 * 2.0**28] * 3
    with pytest.raises(Abort, match="may overflow"):
        layout(bits=30, bound=2.0**28, clients=32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, BOUND * 1.001, -BOUND * 1.001])
def test_what_is_beyond_the_bound_is_refused(value):
    with pytest.raises(Abort, match="bound"):
        layout().encode({"w": np.array([0.0, value, 0.0])})


@pytest.mark.parametrize(
    "arrays",
    [{"w": np.zeros(4)}, {"v": np.zeros(3)}, {}, {"w": np.zeros(3), "v": np.zeros(3)}, {"w": np.zeros(3, complex)}],
)
def test_other_names_shapes_and_types_are_refused(arrays):
    with pytest.raises(Abort):
        layout().encode(arrays)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"bits": 53}, "52"), ({"bound": 0.0}, "bound"), ({"bound": np.inf}, "bound"), ({"clients": 0}, "one client"),
     ({"shape": (MOST_NUMBERS + 1,)}, "numbers"), ({"shape": (0,)}, "numbers"), ({"shape": (-1, -3)}, "shape")],
)  # fmt: skip
def test_impossible_layouts_are_refused(changed, reason):
    with pytest.raises(Abort, match=reason):
        layout(**changed)


def test_a_sum_that_so_many_clients_cannot_have_is_refused():
    vectors = [layout().encode({"w": np.full(3, BOUND)})] * 3
    assert layout().decode(plain_sum(vectors), 3)["w"].tolist() == [3 * BOUND] * 3
    with pytest.raises(Abort, match="beyond what 2 clients"):
        layout().decode(plain_sum(vectors), 2)
    with pytest.raises(Abort, match="no sum"):
        layout().decode(plain_sum(vectors)[:2], 3)
    with pytest.raises(Abort, match="nothing"):
        plain_sum([])
