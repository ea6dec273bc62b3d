"""Small rounds of secure aggregation, and what may happen to their messages."""

from __future__ import annotations

from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rebafl.secagg.client import Client
from rebafl.secagg.fixed_point import Layout, Part, Vector, plain_sum
from rebafl.secagg.local import Outcome, exchange
from rebafl.secagg.messages import Stage
from rebafl.secagg.server import Server
from rebafl.secagg.terms import Terms

STAGES = [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK]


@cache
def signing_key(client: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def pem(client: int) -> bytes:
    return signing_key(client).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def small_layout(numbers: int = 5, clients: int = 20) -> Layout:
    return Layout((Part("w", (numbers,), 20, 1000.0),), clients)


def make_terms(clients=(0, 1, 2, 3), threshold: int = 3, round_id: bytes = b"round 1", numbers: int = 5) -> Terms:
    return Terms(round_id, {client: pem(client) for client in clients}, threshold, small_layout(numbers))


def make_clients(terms: Terms) -> dict[int, Client]:
    return {client: Client(terms, client, signing_key(client)) for client in terms.keys}


def make_vectors(terms: Terms, seed: int = 0) -> dict[int, Vector]:
    rng = np.random.default_rng(seed)
    layout = terms.layout
    return {client: layout.encode({"w": rng.uniform(-1000, 1000, layout.length)}) for client in terms.keys}


def run(terms: Terms, vectors: dict[int, Vector], **other) -> Outcome:
    return exchange(Server(terms), make_clients(terms), vectors, **other)


def is_exact(outcome: Outcome, vectors: dict[int, Vector]) -> bool:
    return np.array_equal(outcome.total, plain_sum(vectors[client] for client in outcome.survivors))


class Paused:
    """A round that has come to a stage: the server, the clients, and what the server has sent for it."""

    def __init__(self, terms: Terms, stage: Stage) -> None:
        self.terms, self.server, self.clients = terms, Server(terms), make_clients(terms)
        self.vectors = make_vectors(terms)
        self.sent: dict[int, bytes] = dict.fromkeys(terms.keys, b"")
        while self.server.stage is not stage:
            for client in self.sent:
                self.server.take(self.answer(client))
            self.sent = self.server.close()

    def answer(self, client: int, sent: bytes | None = None) -> bytes:
        """What a client says to what it was sent, or to something else."""
        who, stage = self.clients[client], self.server.stage
        data = self.sent[client] if sent is None else sent
        if stage is Stage.ADVERTISE:
            return who.advertise()
        if stage is Stage.MASK:
            return who.mask(data, self.vectors[client])
        return {Stage.SHARE: who.share, Stage.AGREE: who.agree, Stage.UNMASK: who.unmask}[stage](data)
