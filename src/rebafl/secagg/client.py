"""What does a client do in a round? Five steps, each once and in order; it refuses what could unmask its own vector.

Between two steps a client may be saved and restored elsewhere. Whoever does that must see to it that what was saved is
restored once: the same step done twice, on two inputs, gives the client's vector away.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric import ec

from .abort import Abort
from .crypto import KEY, add_mask, agreed_key, commitment, derived_key, public_part, seal, split, unseal, written
from .fixed_point import WORD, Vector
from .messages import (
    EVERYONE,
    Advert,
    Agreement,
    Delivery,
    MaskedInput,
    RevealedShares,
    Roster,
    SealedShares,
    Stage,
    Survivors,
    UnmaskRequest,
)
from .terms import Terms


def seal_purpose(sender: int, recipient: int) -> bytes:
    """Each direction has its own key: each key seals one message."""
    return b"shares %d %d" % (sender, recipient)


def pair_purpose(one: int, other: int) -> bytes:
    return b"pair mask %d %d" % (min(one, other), max(one, other))


def seed_key(seed: bytes, tag: bytes) -> bytes:
    """The key of a client's own mask."""
    return derived_key(seed, tag, b"own mask")


def check_lists(survivors: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    """Whoever reveals shares of both secrets of a client takes off both of its masks."""
    if both := sorted(set(survivors) & set(dropped)):
        raise Abort(f"client {both[0]} is named both as a survivor and as dropped")


class Client:
    """One client in one round. After any `Abort` it is closed and has forgotten its secrets."""

    def __init__(self, terms: Terms, client: int, signing_key: ec.EllipticCurvePrivateKey) -> None:
        expected = terms.public_keys.get(client)
        if expected is None or written(expected) != written(signing_key.public_key()):
            raise Abort(f"the terms do not name client {client} with this key")
        self.terms, self.client, self._signing_key = terms, client, signing_key
        self.stage = Stage.ADVERTISE
        self._seal_secret, self._mask_secret, self._seed = (secrets.token_bytes(KEY) for _ in range(3))
        self._own_advert: Advert | None = None
        self._adverts: Mapping[int, Advert] = {}
        self._shares: dict[int, tuple[bytes, bytes]] = {}  # by whose they are: of its mask key, and of its seed
        self._agreed: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def advertise(self) -> bytes:
        """Public keys for this round."""
        with self._step(Stage.ADVERTISE, Stage.SHARE):
            tag = self.terms.tag
            keys = public_part(self._seal_secret), public_part(self._mask_secret)
            advert = Advert(tag, self.client, b"", *keys, commitment(self._seed, tag))
            self._own_advert = advert.signed_by(self._signing_key)
            return self._own_advert.to_bytes()

    def share(self, roster: bytes) -> bytes:
        """Shares of the two secrets, sealed for each of the others."""
        with self._step(Stage.SHARE, Stage.MASK):
            message = Roster.from_bytes(roster)
            self.terms.check_round(message)
            self._check_adverts(message)
            self._adverts = message.adverts
            holders = sorted(self._adverts)
            threshold = self.terms.threshold
            of_key, of_seed = (split(secret, threshold, holders) for secret in (self._mask_secret, self._seed))
            self._shares = {self.client: (of_key[self.client], of_seed[self.client])}
            sealed = {
                other: seal(self._key_to(other, self.client, other), of_key[other] + of_seed[other], self.terms.tag)
                for other in holders
                if other != self.client
            }
            return SealedShares(self.terms.tag, self.client, b"", sealed).signed_by(self._signing_key).to_bytes()

    def _check_adverts(self, roster: Roster) -> None:
        adverts = roster.adverts
        if roster.client != EVERYONE or adverts.get(self.client) != self._own_advert:
            raise Abort("the roster does not hold this client's own keys")
        self.terms.check_enough(adverts, "advertised keys")
        for advert in adverts.values():
            self.terms.check_signed(advert)
        keys = [key for advert in adverts.values() for key in (advert.seal_key, advert.mask_key, advert.commitment)]
        if len(set(keys)) != len(keys):
            raise Abort("a key is in the roster twice")

    def mask(self, delivery: bytes, vector: Vector) -> bytes:
        """The vector, masked with the client's own mask and one for each other client that shared its secrets."""
        with self._step(Stage.MASK, Stage.AGREE):
            message = Delivery.from_bytes(delivery)
            self.terms.check_round(message)
            if message.client != self.client or not message.sealed.keys() <= self._adverts.keys() - {self.client}:
                raise Abort("shares were delivered that are for or from another client")
            self.terms.check_enough({*message.sealed, self.client}, "shared their secrets")
            if vector.dtype != WORD or vector.shape != (self.terms.layout.length,):
                raise Abort(f"the vector is not one of {self.terms.layout.length} words")
            for other, sealed in message.sealed.items():
                shares = unseal(self._key_to(other, other, self.client), sealed, self.terms.tag)
                self._shares[other] = shares[:KEY], shares[KEY:]
            masked = vector.copy()
            add_mask(masked, seed_key(self._seed, self.terms.tag))
            for other in message.sealed:
                purpose = pair_purpose(self.client, other)
                key = agreed_key(self._mask_secret, self._adverts[other].mask_key, self.terms.tag, purpose)
                add_mask(masked, key, subtract=other < self.client)
            reply = MaskedInput(self.terms.tag, self.client, b"", masked.tobytes())
            return reply.signed_by(self._signing_key).to_bytes()

    def agree(self, survivors: bytes) -> bytes:
        """A signature of the two lists, if they can be right; a client signs once."""
        with self._step(Stage.AGREE, Stage.UNMASK):
            message = Survivors.from_bytes(survivors)
            self.terms.check_round(message)
            check_lists(message.survivors, message.dropped)
            if message.client != EVERYONE or {*message.survivors, *message.dropped} != self._shares.keys():
                raise Abort("the lists do not name those whose shares were delivered")
            if self.client not in message.survivors:
                raise Abort("this client's own input is said not to have arrived")
            self.terms.check_enough(message.survivors, "survived")
            self._agreed = message.survivors, message.dropped
            reply = Agreement(self.terms.tag, self.client, b"", *self._agreed)
            return reply.signed_by(self._signing_key).to_bytes()

    def unmask(self, request: bytes) -> bytes:
        """Shares that take off the survivors' own masks and the dropped clients' pair masks, if enough others agree."""
        with self._step(Stage.UNMASK, Stage.DONE):
            message = UnmaskRequest.from_bytes(request)
            self.terms.check_round(message)
            check_lists(message.survivors, message.dropped)
            self.terms.check_enough(message.survivors, "survived")
            if message.client != EVERYONE or (message.survivors, message.dropped) != self._agreed:
                raise Abort("the lists are not those that this client agreed to")
            if not message.signatures.keys() <= set(message.survivors):
                raise Abort("a client agreed that is no survivor")
            self.terms.check_enough(message.signatures, "agreed")
            for agreement in message.agreements():
                self.terms.check_signed(agreement)
            seeds = {other: self._shares[other][1] for other in message.survivors}
            mask_keys = {other: self._shares[other][0] for other in message.dropped}
            reply = RevealedShares(self.terms.tag, self.client, b"", seeds, mask_keys)
            data = reply.signed_by(self._signing_key).to_bytes()
            self._forget()
            return data

    def saved(self) -> bytes:
        """Everything that the next step needs, all secrets included, as JSON."""
        values = {
            "stage": self.stage.value,
            "secrets": [secret.hex() for secret in (self._seal_secret, self._mask_secret, self._seed)],
            "own_advert": self._own_advert.to_bytes().hex() if self._own_advert else "",
            "adverts": {str(client): advert.to_bytes().hex() for client, advert in self._adverts.items()},
            "shares": {str(client): [share.hex() for share in pair] for client, pair in self._shares.items()},
            "agreed": self._agreed,
        }
        return json.dumps(values).encode()

    @classmethod
    def restored(cls, terms: Terms, client: int, signing_key: ec.EllipticCurvePrivateKey, saved: bytes) -> Client:
        """The client that was saved; `terms` must be those it had."""
        values = json.loads(saved)
        one = cls(terms, client, signing_key)
        one.stage = Stage(values["stage"])
        one._seal_secret, one._mask_secret, one._seed = map(bytes.fromhex, values["secrets"])
        one._own_advert = Advert.from_bytes(bytes.fromhex(values["own_advert"])) if values["own_advert"] else None
        one._adverts = {int(c): Advert.from_bytes(bytes.fromhex(data)) for c, data in values["adverts"].items()}
        one._shares = {int(c): (bytes.fromhex(a), bytes.fromhex(b)) for c, (a, b) in values["shares"].items()}
        if values["agreed"]:
            survivors, dropped = values["agreed"]
            one._agreed = tuple(survivors), tuple(dropped)
        return one

    def _key_to(self, other: int, sender: int, recipient: int) -> bytes:
        purpose = seal_purpose(sender, recipient)
        return agreed_key(self._seal_secret, self._adverts[other].seal_key, self.terms.tag, purpose)

    @contextmanager
    def _step(self, now: Stage, after: Stage) -> Iterator[None]:
        """A step is done once and in order; whatever fails in it closes the client."""
        stage, self.stage = self.stage, Stage.CLOSED
        try:
            if stage is not now:
                raise Abort(f"a client was asked to {now.value} when its next step was: {stage.value}")
            yield
        except BaseException:
            self._forget()
            raise
        self.stage = after

    def _forget(self) -> None:
        """Python gives no promise that the bytes leave memory; nothing of this object leads to them any more."""
        self._seal_secret = self._mask_secret = self._seed = b""
        self._shares = {}
