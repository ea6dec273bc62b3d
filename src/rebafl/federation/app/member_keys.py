"""Which public key belongs to which client? A members file says it; the server and its start script both read it.

[clients]
0 = "ecdsa-sha2-nistp384 AAAA…"     # as in an OpenSSH .pub file
1 = "ecdsa-sha2-nistp384 AAAA…"
"""

from __future__ import annotations

from pathlib import Path

from ...base.config import read_toml
from ...base.errors import UserError

MEMBERS = "members.toml"  # in the server's folder


def read_keys(path: Path) -> dict[int, bytes]:
    """Client -> public key (PEM, as the SuperLink shows it), from a members file."""
    from cryptography.exceptions import UnsupportedAlgorithm  # comes with Flower
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    entries = read_toml(path).get("clients")
    if not isinstance(entries, dict) or not entries:
        raise UserError(f'{path} must hold a table [clients] with lines such as 0 = "ecdsa-sha2-nistp384 AAAA…".')
    keys: dict[int, bytes] = {}
    for number, text in entries.items():
        if not number.isdecimal():
            raise UserError(f"{path}: {number!r} is no client; clients are numbers, counted from 0.")
        try:
            key = load_ssh_public_key(text.encode())
        except (ValueError, UnsupportedAlgorithm, AttributeError) as error:
            raise UserError(f"{path}: the key of client {number} cannot be read ({error}); restore it.") from None
        keys[int(number)] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return keys
