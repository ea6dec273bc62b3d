"""The libraries' cryptography, as it is set here: known values, and what must agree or must not."""

from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from rebafl.secagg.abort import Abort
from rebafl.secagg.crypto import (
    BLOCK,
    add_mask,
    agreed_key,
    combine,
    commitment,
    is_signed,
    public_part,
    seal,
    sign,
    split,
    unseal,
)
from rebafl.secagg.fixed_point import WORD
from support.secagg import signing_key

TAG = bytes(32)
SECRET = bytes(range(32))


def test_the_mask_is_the_key_stream_of_chacha20():
    """RFC 8439, appendix A.1, test vector 1."""
    vector = np.zeros(8, dtype=WORD)
    add_mask(vector, bytes(32))
    assert vector.tobytes().hex() == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_make_no_difference_and_masks_come_off(length):
    stream = Cipher(ChaCha20(SECRET, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    vector = np.random.default_rng(0).integers(0, 2**64, length, dtype=np.uint64)
    masked = vector.copy()
    add_mask(masked, SECRET)
    expected = [(int(a) + int(b)) % 2**64 for a, b in zip(vector, np.frombuffer(stream, WORD), strict=True)]
    assert masked.tolist() == expected
    add_mask(masked, SECRET, subtract=True)
    assert np.array_equal(masked, vector)


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not():
    holders = [3, 4, 8, 9, 20]
    shares = split(SECRET, 3, holders)
    for chosen in combinations(holders, 3):
        assert combine({holder: shares[holder] for holder in chosen}, 3, holders) == SECRET
    for few in combinations(holders, 2):
        assert combine({holder: shares[holder] for holder in few}, 2, holders) != SECRET
    assert split(SECRET, 3, holders) != shares


def test_two_agree_on_a_key_for_one_purpose_in_one_round():
    one, other = bytes(range(32)), bytes(range(32, 64))
    key = agreed_key(one, public_part(other), TAG, b"masks")
    assert key == agreed_key(other, public_part(one), TAG, b"masks")
    others = [agreed_key(one, public_part(other), tag, what) for tag, what in ((TAG, b"shares"), (SECRET, b"masks"))]
    assert len({key, *others}) == 3
    with pytest.raises(Abort, match="every secret"):
        agreed_key(one, bytes(32), TAG, b"masks")


def test_sealed_bytes_open_with_the_key_and_the_round_only():
    sealed = seal(SECRET, b"shares", TAG)
    assert unseal(SECRET, sealed, TAG) == b"shares"
    for key, data, tag in ((bytes(32), sealed, TAG), (SECRET, sealed[::-1], TAG), (SECRET, sealed, SECRET)):
        with pytest.raises(Abort, match="sealed shares"):
            unseal(key, data, tag)


def test_signatures():
    signature = sign(signing_key(0), b"data")
    assert len(signature) == 96
    assert is_signed(signing_key(0).public_key(), b"data", signature)
    assert not is_signed(signing_key(0).public_key(), b"dato", signature)
    assert not is_signed(signing_key(1).public_key(), b"data", signature)
    assert not is_signed(signing_key(0).public_key(), b"data", bytes(96))


def test_a_commitment_is_to_one_seed_in_one_round():
    assert len({commitment(SECRET, TAG), commitment(TAG, TAG), commitment(SECRET, SECRET)}) == 3
