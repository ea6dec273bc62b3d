"""Messages: bytes and back, and nothing else is read."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebafl.secagg.abort import Abort
from rebafl.secagg.messages import (
    EVERYONE,
    HEAD,
    MAGIC,
    SEALED,
    Advert,
    Agreement,
    Delivery,
    MaskedInput,
    RevealedShares,
    Roster,
    SealedShares,
    Survivors,
    UnmaskRequest,
)

TAG, SIGNATURE = bytes(range(32)), bytes(range(96))


def advert(client):
    return Advert(TAG, client, SIGNATURE, b"s" * 32, b"m" * 32, b"c" * 32)


MESSAGES = [
    advert(3),
    Roster(TAG, EVERYONE, {1: advert(1), 2: advert(2)}),
    SealedShares(TAG, 1, SIGNATURE, {2: b"x" * SEALED, 5: b"y" * SEALED}),
    Delivery(TAG, 1, {2: b"x" * SEALED}),
    MaskedInput(TAG, 1, SIGNATURE, bytes(range(24))),
    Survivors(TAG, EVERYONE, (1, 2, 3), (7,)),
    Agreement(TAG, 1, SIGNATURE, (1, 2, 3), (7,)),
    UnmaskRequest(TAG, EVERYONE, (1, 2), (), {1: SIGNATURE, 2: SIGNATURE}),
    RevealedShares(TAG, 1, SIGNATURE, {1: b"k" * 32, 2: b"l" * 32}, {7: b"n" * 32}),
]
KINDS = [type(message) for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_bytes_and_back(message):
    assert type(message).from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_other_lengths_and_kinds_are_refused(message):
    data = message.to_bytes()
    for end in range(len(data)):
        with pytest.raises(Abort):
            type(message).from_bytes(data[:end])
    with pytest.raises(Abort, match="too long"):
        type(message).from_bytes(data + b"\0")
    for kind in KINDS:
        if kind is not type(message):
            with pytest.raises(Abort, match="not of the kind"):
                kind.from_bytes(data)


@given(st.sampled_from(MESSAGES), st.data())
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_refused_or_mean_something_else(message, data):
    """There is one form of each message: what is read is written in the same bytes again."""
    changed = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = type(message).from_bytes(bytes(changed))
    except Abort:
        return
    assert read.to_bytes() == bytes(changed)


@given(st.binary(max_size=300), st.sampled_from(KINDS))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_with_a_reason(data, kind):
    with pytest.raises(Abort):
        kind.from_bytes(data)
    try:
        kind.from_bytes(HEAD.pack(MAGIC, kind.KIND, TAG, 1) + data)
    except Abort as reason:
        assert str(reason)


@pytest.mark.parametrize("ids", [(2, 1), (1, 1)])
def test_lists_are_in_order_and_without_repetition(ids):
    body = struct.pack(">III", 2, *ids) + struct.pack(">I", 0)
    with pytest.raises(Abort, match="twice or out of order"):
        Survivors.from_bytes(HEAD.pack(MAGIC, Survivors.KIND, TAG, EVERYONE) + body)


def test_sizes_are_bounded():
    for kind in (Survivors, Roster, Delivery):
        with pytest.raises(Abort, match="at most 1024"):
            kind.from_bytes(HEAD.pack(MAGIC, kind.KIND, TAG, EVERYONE) + struct.pack(">I", 1025) + bytes(10000))
    with pytest.raises(Abort, match="at most"):
        MaskedInput.from_bytes(HEAD.pack(MAGIC, MaskedInput.KIND, TAG, 1) + struct.pack(">I", 2**32 - 1))
