"""Which cryptography is used? That of two libraries, each function with the one setting that is used here.

X25519, HKDF-SHA256, ChaCha20, ChaCha20-Poly1305 and ECDSA on P-384 are those of `cryptography`, Shamir's sharing over
GF(2^128) is that of `pycryptodome`. Each key that is derived here has one purpose and is used once, so nonces are 0.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_private_key,
)

from .abort import Abort
from .fixed_point import WORD, Vector

KEY, SIGNATURE, TAG = 32, 96, 16  # bytes: of keys and seeds; of r and s on P-384; that sealing adds
HALF = 16  # bytes that Shamir's scheme shares at a time
BLOCK = 2**15  # numbers that are masked at a time: they stay in the processor's cache
ZEROS = bytes(BLOCK * WORD.itemsize)


def read_signing_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    """A node's long-term key, as `rebafl federation init` writes it to node.key."""
    try:
        key = load_ssh_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Abort(f"the signing key cannot be read ({error})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise Abort("the signing key is not one on the curve P-384")
    return key


def read_public_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Abort(f"a public key cannot be read ({error})") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise Abort("a public key is not one on the curve P-384")
    return key


def written(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key in the one form in which two are compared."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA384())))
    return r.to_bytes(SIGNATURE // 2, "big") + s.to_bytes(SIGNATURE // 2, "big")


def is_signed(key: ec.EllipticCurvePublicKey, data: bytes, signature: bytes) -> bool:
    r, s = (int.from_bytes(half, "big") for half in (signature[: SIGNATURE // 2], signature[SIGNATURE // 2 :]))
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def public_part(secret: bytes) -> bytes:
    """The X25519 public key of a secret one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agreed_key(secret: bytes, public: bytes, tag: bytes, purpose: bytes) -> bytes:
    """A key that only the holders of the two secrets can derive, for one purpose in one round."""
    try:
        common = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of small order gives zeros, whatever the secret
        raise Abort("a public key is one that gives every secret away") from None
    return derived_key(common, tag, purpose)


def derived_key(secret: bytes, tag: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=KEY, salt=tag, info=b"rebafl secagg 1 " + purpose).derive(secret)


def add_mask(vector: Vector, key: bytes, subtract: bool = False) -> None:
    """Add the key stream of ChaCha20 to a vector in place, modulo 2^64, or take it away."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    change = np.subtract if subtract else np.add
    for start in range(0, len(vector), BLOCK):
        part = vector[start : start + BLOCK]
        change(part, np.frombuffer(stream.update(ZEROS[: part.nbytes]), dtype=WORD), out=part)


def commitment(seed: bytes, tag: bytes) -> bytes:
    """Ties a client to its seed before it is shared; a seed that was put together from wrong shares does not fit."""
    return hashlib.sha256(b"rebafl secagg 1 commitment" + tag + seed).digest()


def same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def seal(key: bytes, data: bytes, tag: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(bytes(12), data, tag)


def unseal(key: bytes, data: bytes, tag: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, tag)
    except InvalidTag:
        raise Abort("sealed shares were changed, or are not from whom they claim to be") from None


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """A share of 32 bytes for each holder; any `threshold` of them give the secret, fewer say nothing about it."""
    first, second = (
        [share for _, share in Shamir.split(threshold, len(holders), half, ssss=False)]
        for half in (secret[:HALF], secret[HALF:])
    )
    return {holder: a + b for holder, a, b in zip(holders, first, second, strict=True)}


def combine(shares: Mapping[int, bytes], threshold: int, holders: Sequence[int]) -> bytes:
    """The secret, from the first `threshold` shares; `holders` are those for whom it was split."""
    points = [(holders.index(holder) + 1, share) for holder, share in sorted(shares.items())[:threshold]]
    first = Shamir.combine([(place, share[:HALF]) for place, share in points], ssss=False)
    return first + Shamir.combine([(place, share[HALF:]) for place, share in points], ssss=False)
