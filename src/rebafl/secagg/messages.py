"""What do server and clients say to each other? Nine plain messages, each with one form in bytes and strict parsing.

    stage       client to server                          server to clients
    advertise   Advert: two ephemeral public keys         Roster: all adverts
    share       SealedShares: one for each other client   Delivery: those that are for one client
    mask        MaskedInput: the vector, masked           Survivors: whose input has arrived, and whose has not
    agree       Agreement: a signature of that            UnmaskRequest: the same with all signatures
    unmask      RevealedShares

Every message carries the digest of the round's terms. All that clients say is signed with their long-term keys. Lists
are in increasing order without repetition and lengths must match exactly: no two byte strings mean the same.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import Self

from .abort import Abort
from .crypto import KEY, SIGNATURE, TAG, is_signed, sign
from .fixed_point import MOST_NUMBERS, WORD, Vector

MOST_CLIENTS = 1024
HEAD = struct.Struct(">4sB32sI")  # magic and version, kind, digest of the terms, client
NUMBER = struct.Struct(">I")
MAGIC = b"RSA\x01"
EVERYONE = 2**32 - 1  # as the client of a message that goes to all
SEALED = 2 * KEY + TAG  # what one client seals for another: a share of its mask key and one of its seed


class Stage(Enum):
    """What a client or the server does next."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    AGREE = "agree"
    UNMASK = "unmask"
    DONE = "done"
    CLOSED = "closed"


class Reader:
    """Takes bytes from the front; nothing is allocated on the word of a length."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise Abort("a message is too short")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, most: int) -> int:
        (value,) = NUMBER.unpack(self.take(NUMBER.size))
        if value > most:
            raise Abort(f"a message holds {value} entries; at most {most} are possible")
        return int(value)

    def table(self, width: int) -> dict[int, bytes]:
        """Entries of one width by client."""
        entries: dict[int, bytes] = {}
        last = -1
        for _ in range(self.number(MOST_CLIENTS)):
            client = self.number(EVERYONE)
            if client <= last:
                raise Abort(f"client {client} is named twice or out of order in a message")
            entries[client] = self.take(width)
            last = client
        return entries

    def ids(self) -> tuple[int, ...]:
        return tuple(self.table(0))

    def end(self) -> None:
        if self.place != len(self.data):
            raise Abort("a message is too long")


def _table(entries: Mapping[int, bytes]) -> bytes:
    pieces = [NUMBER.pack(client) + entry for client, entry in sorted(entries.items())]
    return NUMBER.pack(len(pieces)) + b"".join(pieces)


def _ids(clients: Iterable[int]) -> bytes:
    return _table(dict.fromkeys(clients, b""))


def sender_of(data: bytes) -> int:
    """Whose message this claims to be; that it is signed is checked elsewhere."""
    return int(HEAD.unpack(Reader(data).take(HEAD.size))[3])


@dataclass(frozen=True)
class Message(ABC):
    """`client` is the sender or the recipient, or EVERYONE."""

    KIND: ClassVar[int]
    tag: bytes
    client: int

    def to_bytes(self) -> bytes:
        return self._head() + self._body()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `Abort` for anything but what `to_bytes` of this kind can give."""
        reader = Reader(data)
        magic, kind, tag, client = HEAD.unpack(reader.take(HEAD.size))
        if magic != MAGIC or kind != cls.KIND:
            raise Abort(f"a message is not of the kind {cls.__name__}")
        message = cls._read(tag, client, reader)
        reader.end()
        return message

    def _head(self) -> bytes:
        return HEAD.pack(MAGIC, self.KIND, self.tag, self.client)

    @abstractmethod
    def _body(self) -> bytes: ...

    @classmethod
    @abstractmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self: ...


@dataclass(frozen=True)
class Signed(Message):
    """From a client. The signature covers everything else, kind, round and sender included."""

    signature: bytes

    def signed_by(self, key: ec.EllipticCurvePrivateKey) -> Self:
        return replace(self, signature=sign(key, self._head() + self._content()))

    def is_signed_by(self, key: ec.EllipticCurvePublicKey) -> bool:
        return is_signed(key, self._head() + self._content(), self.signature)

    def _body(self) -> bytes:
        return self._content() + self.signature

    @abstractmethod
    def _content(self) -> bytes: ...


@dataclass(frozen=True)
class Advert(Signed):
    """Public keys for sealing shares and for making masks, and the commitment to the seed of the client's own mask."""

    KIND = 1
    SIZE: ClassVar[int] = HEAD.size + 3 * KEY + SIGNATURE
    seal_key: bytes
    mask_key: bytes
    commitment: bytes

    def _content(self) -> bytes:
        return self.seal_key + self.mask_key + self.commitment

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        seal_key, mask_key, commitment, signature = (reader.take(size) for size in (KEY, KEY, KEY, SIGNATURE))
        return cls(tag, client, signature, seal_key, mask_key, commitment)


@dataclass(frozen=True)
class Roster(Message):
    """The adverts of all who take part, as they were signed."""

    KIND = 2
    adverts: Mapping[int, Advert]

    def _body(self) -> bytes:
        return _table({client: advert.to_bytes() for client, advert in self.adverts.items()})

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        adverts = {number: Advert.from_bytes(data) for number, data in reader.table(Advert.SIZE).items()}
        if any(advert.client != number for number, advert in adverts.items()):
            raise Abort("an advert in the roster is entered under another client")
        return cls(tag, client, adverts)


@dataclass(frozen=True)
class SealedShares(Signed):
    """What a client has for each of the others; only the recipient can open it."""

    KIND = 3
    sealed: Mapping[int, bytes]

    def _content(self) -> bytes:
        return _table(self.sealed)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        sealed = reader.table(SEALED)
        return cls(tag, client, reader.take(SIGNATURE), sealed)


@dataclass(frozen=True)
class Delivery(Message):
    """What the others have for one client, by sender."""

    KIND = 4
    sealed: Mapping[int, bytes]

    def _body(self) -> bytes:
        return _table(self.sealed)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        return cls(tag, client, reader.table(SEALED))


@dataclass(frozen=True)
class MaskedInput(Signed):
    """The vector with all masks, as bytes of little-endian words."""

    KIND = 5
    words: bytes

    @property
    def vector(self) -> Vector:
        return np.frombuffer(self.words, dtype=WORD)

    def _content(self) -> bytes:
        return NUMBER.pack(len(self.words) // WORD.itemsize) + self.words

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        words = reader.take(reader.number(MOST_NUMBERS) * WORD.itemsize)
        return cls(tag, client, reader.take(SIGNATURE), words)


@dataclass(frozen=True)
class Survivors(Message):
    """Whose masked input has arrived, and whose has not although shares of it are out."""

    KIND = 6
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]

    def _body(self) -> bytes:
        return _ids(self.survivors) + _ids(self.dropped)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        return cls(tag, client, reader.ids(), reader.ids())


@dataclass(frozen=True)
class Agreement(Signed):
    """A client's word that it was told these two lists."""

    KIND = 7
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]

    def _content(self) -> bytes:
        return _ids(self.survivors) + _ids(self.dropped)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        survivors, dropped = reader.ids(), reader.ids()
        return cls(tag, client, reader.take(SIGNATURE), survivors, dropped)


@dataclass(frozen=True)
class UnmaskRequest(Message):
    """The two lists again, with the signatures of those who agreed to them."""

    KIND = 8
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]
    signatures: Mapping[int, bytes]

    def agreements(self) -> list[Agreement]:
        return [
            Agreement(self.tag, client, signature, self.survivors, self.dropped)
            for client, signature in self.signatures.items()
        ]

    def _body(self) -> bytes:
        return _ids(self.survivors) + _ids(self.dropped) + _table(self.signatures)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        return cls(tag, client, reader.ids(), reader.ids(), reader.table(SIGNATURE))


@dataclass(frozen=True)
class RevealedShares(Signed):
    """Shares of the seeds of survivors, and of the mask keys of dropped clients: of nobody are both revealed."""

    KIND = 9
    seeds: Mapping[int, bytes]
    mask_keys: Mapping[int, bytes]

    def _content(self) -> bytes:
        return _table(self.seeds) + _table(self.mask_keys)

    @classmethod
    def _read(cls, tag: bytes, client: int, reader: Reader) -> Self:
        seeds, mask_keys = reader.table(KEY), reader.table(KEY)
        return cls(tag, client, reader.take(SIGNATURE), seeds, mask_keys)
