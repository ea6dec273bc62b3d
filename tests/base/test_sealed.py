"""Files that carry a digest: whatever bit is flipped is noticed."""

import json
from contextlib import suppress

import pytest

from rebafl.base.sealed import seal, unseal
from support.damage import flips


@pytest.mark.parametrize("text", ['{"a": 1}', '{\n "a": [1, 2],\n "b": {"c": "ü"}\n}\n', '{"a": {"sha256": "x"}}'])
def test_a_sealed_object_comes_back_and_says_that_it_was_sealed(text):
    assert unseal(seal(text)) == (json.loads(text), True)
    assert unseal(text.encode()) == (json.loads(text), False)
    assert json.loads(seal(text)).keys() == {*json.loads(text), "sha256"}, "still plain JSON"


def test_no_flipped_bit_gives_the_same_keys_and_passes():
    data = seal('{\n "rounds": 3,\n "curve": [1.5, 2.5]\n}')
    for damaged in flips(data, 2000):
        with suppress(ValueError):
            found, sealed = unseal(damaged)
            assert not sealed
            assert found.keys() != {"rounds", "curve"}, damaged
