"""What is sent comes through bit for bit; bytes that are no plain array are malformed."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.interface import Sent
from rebafl.federation.app.records import (
    LONGEST,
    Malformed,
    Order,
    Reply,
    classes_record,
    from_arrays,
    read_classes,
    read_order,
    read_reply,
    shown,
    to_arrays,
)
from support.lies import npy_bytes


@given(st.text())
def test_no_text_of_a_node_acts_on_a_terminal(text):
    assert shown(text).isprintable()
    assert len(shown(text)) <= LONGEST


FINE = st.sampled_from(["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])


TENSORS = st.dictionaries(
    st.text(max_size=12).filter(str.isprintable),
    FINE.flatmap(lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, min_side=0))),
    max_size=4,
).map(lambda group: {name: torch.from_numpy(np.array(array)) for name, array in group.items()})


def alike(a, b) -> bool:
    """Bit for bit, NaN included."""
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].numpy().tobytes() == b[n].numpy().tobytes()
        for n in a
    )


@given(TENSORS, TENSORS, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62))
def test_orders_and_replies_come_through_bit_for_bit(first, second, client, round, state):
    run_name = uuid.uuid4().hex
    order = read_order(Order(run_name, client, round, state, "{}", "abc", Sent(first, second)).record())
    assert alike(order.sent.weights, first)
    assert alike(order.sent.extra, second)
    assert (order.run, order.client, order.round, order.state) == (run_name, client, round, state)
    counts = torch.tensor([3, 4])
    reply = read_reply(Reply(Upload(client, first, counts, second), round, fresh=True).record(), client, round)
    assert alike(reply.upload.change, first)
    assert alike(reply.upload.shared, second)
    assert reply.upload.counts.tolist() == [3, 4]
    assert reply.fresh


def test_memory_layouts_do_not_change_what_is_sent():
    image = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    matrix = torch.arange(6.0).reshape(2, 3).t()
    found = from_arrays(to_arrays({"image": image, "matrix": matrix}))
    assert torch.equal(found["image"], image)
    assert torch.equal(found["matrix"], matrix)


def test_no_object_of_a_reply_can_be_foreseen():
    """The SuperLink takes an object only with the parts that were announced first, by whomever."""
    upload = Upload(1, {"w": torch.zeros(3)}, torch.tensor([3, 4]), {"s": torch.zeros(2)})
    first, second = (set(get_all_nested_objects(Reply(upload, 2).record())) for _ in range(2))
    assert len(first) == 3 * 3 + 2
    assert first & second == set()
    order = Order("0" * 32, 1, 2, 0, "{}", "", Sent({"w": torch.zeros(3)}, {}))
    assert get_all_nested_objects(order.record()).keys() == get_all_nested_objects(order.record()).keys()  # sent once


@pytest.mark.parametrize("salt", ["", "0123456789abcdef" * 2])
def test_numpy_itself_can_read_what_is_sent(salt):
    array = to_arrays({"x": torch.arange(6.0).reshape(2, 3)}, salt)["x"]
    assert np.array_equal(array.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))


GOOD = Array(np.arange(4, dtype=np.float32))


def described(descr: str, shape: str, fortran: bool = False) -> bytes:
    return npy_bytes(f"{{'descr':'{descr}','fortran_order':{fortran},'shape':{shape}}}")


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "reason"),
    [
        ("float32", (4,), b"", "cannot be decoded"),
        ("float32", (4,), b"PK\x03\x04 an archive", "cannot be decoded"),
        ("float32", (4,), GOOD.data[:-1], "15 bytes for shape"),
        ("float32", (4,), GOOD.data + b"x", "17 bytes for shape"),
        ("float32", (5,), GOOD.data, "two things"),
        ("float64", (4,), GOOD.data, "two things"),
        ("float32", (10**12,), described("<f4", f"({10**12},)"), "16 bytes for shape"),
        ("object", (2,), described("|O", "(2,)"), "holds object"),
        (">f4", (4,), described(">f4", "(4,)"), "holds >f4"),
        ("float32", (2, 2), described("<f4", "(2,2)", fortran=True), "in an order that is not used here"),
        ("float32", (-4,), described("<f4", "(-4,)"), "two things"),
        ("float32", (4,), npy_bytes("__import__('os').abort()"), "cannot be decoded"),
        ("float32", (4,), npy_bytes("[" * 100), "cannot be decoded"),
    ],
)
def test_bytes_that_are_no_plain_array_are_malformed(dtype, shape, data, reason):
    with pytest.raises(Malformed, match=reason):
        from_arrays(ArrayRecord({"x": Array(dtype, shape, "numpy.ndarray", data)}))


def test_what_is_stored_as_something_else_is_malformed():
    with pytest.raises(Malformed, match=r"stored as 'torch\.Tensor'"):
        from_arrays(ArrayRecord({"x": Array("float32", (4,), "torch.Tensor", GOOD.data)}))


@given(st.binary(max_size=200))
def test_no_bytes_whatever_do_more_than_raise_malformed(data):
    with pytest.raises(Malformed, match=r"^x (cannot be decoded|holds|says|has) "):
        from_arrays(ArrayRecord({"x": Array("float32", (4,), "numpy.ndarray", data)}))


@pytest.mark.parametrize("name", ["../../etc", "", "A" * 32, "0" * 31])
def test_a_run_cannot_name_a_folder_elsewhere(name):
    with pytest.raises(Malformed, match="no name of a run"):
        read_order(Order(name, 0, 1, 0, "{}", "", Sent({}, {})).record())


def test_records_that_nobody_asked_for_are_refused():
    run = uuid.uuid4().hex
    order = Order(run, 1, 2, 0, "{}", "data", Sent({"w": torch.zeros(2)})).record()
    assert read_order(order).client == 1
    order["other"] = ArrayRecord()
    with pytest.raises(Malformed, match="unknown record 'other'"):
        read_order(order)
    told = classes_record(1, 2, torch.tensor([0, 1]))
    assert read_classes(told, 1, 2, 2).tolist() == [0, 1]
    told["change"] = ArrayRecord()
    with pytest.raises(Malformed, match="unknown record 'change'"):
        read_classes(told, 1, 2, 2)
