"""What does the server do in a round? It passes messages on, adds masked vectors, and takes the masks off their sum.

    server = Server(terms)
    while server.stage is not Stage.DONE:
        # server.take(data) for what clients answer; those who do not answer in time are lost
        messages = server.close()  # what to send to whom for the next stage
    total = server.total

The sum is that of the clients in `survivors`, exactly; otherwise there is an `Abort`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from .abort import Abort
from .client import pair_purpose, seed_key
from .crypto import add_mask, agreed_key, combine, commitment, public_part, same
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
    Signed,
    Stage,
    Survivors,
    UnmaskRequest,
)
from .terms import Terms

Said = TypeVar("Said", bound=Signed)


class Server:
    """One round on the server's side. A message that is refused changes nothing."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.stage = Stage.ADVERTISE
        self.expected = set(terms.keys)  # whose answers to this stage are still missing
        self.dropped: tuple[int, ...] = ()
        self.survivors: tuple[int, ...] = ()
        self._adverts: dict[int, Advert] = {}
        self._sealed: dict[int, SealedShares] = {}
        self._masked: set[int] = set()
        self._sum: Vector = np.zeros(terms.layout.length, dtype=WORD)
        self._agreements: dict[int, Agreement] = {}
        self._revealed: dict[int, RevealedShares] = {}

    def take(self, data: bytes) -> int:
        """Use a client's answer to the present stage; returns whose it is. Raises `Abort` if it cannot be used."""
        takes: dict[Stage, Callable[[bytes], int]] = {
            Stage.ADVERTISE: self._take_advert,
            Stage.SHARE: self._take_shares,
            Stage.MASK: self._take_input,
            Stage.AGREE: self._take_agreement,
            Stage.UNMASK: self._take_revealed,
        }
        if self.stage not in takes:
            raise Abort(f"a message arrived although the round is {self.stage.value}")
        client = takes[self.stage](data)
        self.expected.discard(client)
        return client

    def close(self) -> dict[int, bytes]:
        """End the stage with those who have answered: what each of them is sent now. `Abort` if they are too few."""
        closes: dict[Stage, Callable[[], dict[int, bytes]]] = {
            Stage.ADVERTISE: self._send_roster,
            Stage.SHARE: self._send_deliveries,
            Stage.MASK: self._send_survivors,
            Stage.AGREE: self._send_request,
            Stage.UNMASK: self._unmask,
        }
        stage, self.stage = self.stage, Stage.CLOSED  # unless it succeeds
        if stage not in closes:
            raise Abort(f"the round is {stage.value} already")
        messages = closes[stage]()
        stages = list(Stage)
        self.stage = stages[stages.index(stage) + 1]
        self.expected = set(messages)
        return messages

    @property
    def total(self) -> Vector:
        """The sum of the survivors' vectors, once the round is done."""
        if self.stage is not Stage.DONE:
            raise Abort(f"there is no sum: the round's next step was: {self.stage.value}")
        return self._sum

    def _checked(self, message: Said) -> Said:
        self.terms.check_signed(message)
        if message.client not in self.expected:
            raise Abort(f"client {message.client} was not asked, or has answered already")
        return message

    def _take_advert(self, data: bytes) -> int:
        advert = self._checked(Advert.from_bytes(data))
        self._adverts[advert.client] = advert
        return advert.client

    def _send_roster(self) -> dict[int, bytes]:
        self.terms.check_enough(self._adverts, "advertised keys")
        roster = Roster(self.terms.tag, EVERYONE, self._adverts).to_bytes()
        return dict.fromkeys(self._adverts, roster)

    def _take_shares(self, data: bytes) -> int:
        shares = self._checked(SealedShares.from_bytes(data))
        if shares.sealed.keys() != self._adverts.keys() - {shares.client}:
            raise Abort(f"client {shares.client} has not shared its secrets with each of the others")
        self._sealed[shares.client] = shares
        return shares.client

    def _send_deliveries(self) -> dict[int, bytes]:
        self.terms.check_enough(self._sealed, "shared their secrets")
        return {client: self._delivery(client).to_bytes() for client in self._sealed}

    def _delivery(self, client: int) -> Delivery:
        sealed = {other: shares.sealed[client] for other, shares in self._sealed.items() if other != client}
        return Delivery(self.terms.tag, client, sealed)

    def _take_input(self, data: bytes) -> int:
        masked = self._checked(MaskedInput.from_bytes(data))
        if masked.vector.shape != self._sum.shape:
            raise Abort(f"client {masked.client} sent {len(masked.vector)} numbers, not {len(self._sum)}")
        np.add(self._sum, masked.vector, out=self._sum)
        self._masked.add(masked.client)
        return masked.client

    def _send_survivors(self) -> dict[int, bytes]:
        self.terms.check_enough(self._masked, "sent their input")
        self.survivors = tuple(sorted(self._masked))
        self.dropped = tuple(sorted(self._sealed.keys() - self._masked))
        message = Survivors(self.terms.tag, EVERYONE, self.survivors, self.dropped).to_bytes()
        return dict.fromkeys(self.survivors, message)

    def _take_agreement(self, data: bytes) -> int:
        agreement = self._checked(Agreement.from_bytes(data))
        if (agreement.survivors, agreement.dropped) != (self.survivors, self.dropped):
            raise Abort(f"client {agreement.client} agreed to other lists")
        self._agreements[agreement.client] = agreement
        return agreement.client

    def _send_request(self) -> dict[int, bytes]:
        self.terms.check_enough(self._agreements, "agreed")
        signatures = {client: agreement.signature for client, agreement in self._agreements.items()}
        request = UnmaskRequest(self.terms.tag, EVERYONE, self.survivors, self.dropped, signatures).to_bytes()
        return dict.fromkeys(self._agreements, request)

    def _take_revealed(self, data: bytes) -> int:
        revealed = self._checked(RevealedShares.from_bytes(data))
        if (tuple(revealed.seeds), tuple(revealed.mask_keys)) != (self.survivors, self.dropped):
            raise Abort(f"client {revealed.client} revealed shares of others than was asked")
        self._revealed[revealed.client] = revealed
        return revealed.client

    def _unmask(self) -> dict[int, bytes]:
        self.terms.check_enough(self._revealed, "revealed their shares")
        for client in self.survivors:
            seed = self._secret({holder: said.seeds[client] for holder, said in self._revealed.items()})
            if not same(commitment(seed, self.terms.tag), self._adverts[client].commitment):
                raise Abort(f"the revealed shares of client {client}'s seed are wrong")
            add_mask(self._sum, seed_key(seed, self.terms.tag), subtract=True)
        for client in self.dropped:
            secret = self._secret({holder: said.mask_keys[client] for holder, said in self._revealed.items()})
            if not same(public_part(secret), self._adverts[client].mask_key):
                raise Abort(f"the revealed shares of client {client}'s mask key are wrong")
            self._take_pair_masks_off(client, secret)
        return {}

    def _secret(self, shares: Mapping[int, bytes]) -> bytes:
        return combine(shares, self.terms.threshold, sorted(self._adverts))

    def _take_pair_masks_off(self, dropped: int, secret: bytes) -> None:
        """Each survivor has added, or subtracted, the mask that it shared with this client."""
        for client in self.survivors:
            purpose = pair_purpose(client, dropped)
            key = agreed_key(secret, self._adverts[client].mask_key, self.terms.tag, purpose)
            add_mask(self._sum, key, subtract=client < dropped)
