"""How is a round done within one process? All messages as bytes, any of which may be lost or changed on its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .abort import Abort
from .client import Client
from .fixed_point import Vector
from .messages import Stage
from .server import Server

Carry = Callable[[Stage, int, bool, bytes], "bytes | None"]
"""Stage, client, whether to the server, message -> what arrives; None if it is lost."""


@dataclass(frozen=True)
class Outcome:
    """The exact sum of the survivors' vectors; and why clients left the round or their messages were not used."""

    total: Vector
    survivors: tuple[int, ...]
    refused: Mapping[int, str]


def exchange(
    server: Server,
    clients: Mapping[int, Client],
    vectors: Mapping[int, Vector],
    carry: Carry = lambda stage, client, to_server, data: data,
) -> Outcome:
    """Do all stages. Raises `Abort` if the server does."""
    refused: dict[int, str] = {}
    messages: dict[int, bytes] = dict.fromkeys(clients, b"")
    while server.stage is not Stage.DONE:
        stage = server.stage
        for client, sent in messages.items():
            received = carry(stage, client, False, sent)
            if received is None:
                continue
            try:
                answer = carry(stage, client, True, _answer(clients[client], stage, received, vectors[client]))
                if answer is not None:
                    server.take(answer)
            except Abort as reason:
                refused[client] = str(reason)
        messages = server.close()
    return Outcome(server.total, server.survivors, refused)


def _answer(client: Client, stage: Stage, received: bytes, vector: Vector) -> bytes:
    if stage is Stage.ADVERTISE:
        return client.advertise()
    if stage is Stage.MASK:
        return client.mask(received, vector)
    return {Stage.SHARE: client.share, Stage.AGREE: client.agree, Stage.UNMASK: client.unmask}[stage](received)
