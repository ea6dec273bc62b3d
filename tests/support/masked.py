"""A federation in this process whose rounds are masked, and whose messages may be lost or changed on their way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message

from rebafl.federation.app.masking import BYTES, PART, stage_of
from rebafl.federation.app.member_keys import MEMBERS, read_keys
from rebafl.federation.app.node_config import PARTITION_ID
from rebafl.federation.app.records import tensors, to_arrays
from rebafl.federation.ops.credentials import make_node_key
from rebafl.runs.record import Record
from rebafl.secagg.messages import Stage
from support.grid import CLIENTS, FakeGrid, Node, run, same_server, simulated

FEW = "clients {}; at least 3 are needed"  # of four
Carry = Callable[[int, int, Stage, bool, Message], "Message | None"]
"""Part, round, stage, whether to the server, message -> what arrives; None if it is lost."""


def whole(part: int, round: int, stage: Stage, to_server: bool, message: Message) -> Message:
    return message


def make_members(folder: Path, clients: int = CLIENTS) -> None:
    """Keys of all nodes, and a members file, as `rebafl federation init` makes them."""
    lines = ["[clients]"]
    for part in range(clients):
        (folder / f"node-{part}").mkdir(parents=True)
        lines.append(f'{part} = "{make_node_key(folder / f"node-{part}", f"node-{part}")}"')
    (folder / MEMBERS).write_text("\n".join(lines) + "\n")


def masked_nodes(config: dict[str, Any], folder: Path) -> list[Node]:
    """Nodes with keys and a state folder each; `config` gets what the server needs."""
    if not (folder / MEMBERS).exists():
        make_members(folder)
    config["members"] = str(folder / MEMBERS)
    nodes = []
    for part, key in read_keys(folder / MEMBERS).items():
        own = folder / f"node-{part}"
        files = {"state": str(own / "state"), "key": str(own / "node.key"), "members": str(folder / MEMBERS)}
        node = Node(part, config, {PARTITION_ID: part, **files})
        node.public_key = key
        nodes.append(node)
    return nodes


class MaskedGrid(FakeGrid):
    """A grid whose nodes answer at once, if `carry` lets the message and the answer pass."""

    def __init__(self, nodes: list[Node], carry: Carry = whole) -> None:
        super().__init__(nodes)
        self.carry = carry
        self.said: list[tuple[int, int, Stage, bytes]] = []
        """What nodes answered, whether it arrived or not."""

    def _deliver(self, message: Message) -> None:
        node = next(n for n in self.nodes if n.node_id == message.metadata.dst_node_id)
        round, stage = int(message.metadata.group_id), stage_of(message.content)
        assert stage is not None
        self.asked.append((node.part, round, stage))
        received = self.carry(node.part, round, stage, False, message)
        if received is None:
            return
        reply = node.answer(received)
        self.said.append((node.part, round, stage, bytes_of(reply)))
        arrived = self.carry(node.part, round, stage, True, reply)
        if arrived is not None:
            self.replies[message.metadata.message_id] = arrived


def bytes_of(message: Message) -> bytes:
    part = tensors(message.content, PART)
    return part[BYTES].numpy().tobytes() if part else b""


def put_bytes(message: Message, data: bytes) -> Message:
    message.content[PART] = to_arrays({BYTES: torch.frombuffer(bytearray(data), dtype=torch.uint8)})
    return message


def flipped(message: Message, place: int) -> Message:
    """One bit of the protocol's bytes is another."""
    data = bytearray(bytes_of(message))
    data[place % len(data)] ^= 1 << (place % 8)
    return put_bytes(message, bytes(data))


def lost_from(part: int, round: int, stage: Stage, after_answer: bool) -> Carry:
    """This node dies in this stage, before or after it answers, and is back in the next round."""
    dead = False

    def carry(who: int, now: int, at: Stage, to_server: bool, message: Message) -> Message | None:
        nonlocal dead
        if who != part or now != round:
            return message
        dead = dead or (at is stage and to_server is after_answer)
        return None if dead else message

    return carry


def with_survivors(config: dict[str, Any], record: Record, out: Path) -> Record:
    """The same run in the simulator, where the uploads that were used arrive, and all others are lost."""
    arrived = [f"{client},{line.round}" for line in record.rounds() for client in sorted(line.used)]
    out.mkdir()
    trace = out / "trace.csv"
    trace.write_text("client,round\n" + "\n".join(arrived) + "\n")
    return simulated(config, out / "run", dropout="lost", delivery={"kind": "trace", "path": str(trace)})


def is_exact(config: dict[str, Any], record: Record, out: Path) -> bool:
    """Has every round the bits of its survivors' sum, or none?"""
    return same_server(record, with_survivors(config, record, out))


def federated(
    config: dict[str, Any], tmp_path: Path, carry: Carry = whole, **changes: Any
) -> tuple[Record, MaskedGrid]:
    """A whole run, with the nodes' folders in `tmp_path / "fed"`."""
    grid = MaskedGrid(masked_nodes(config, tmp_path / "fed"), carry)
    return run(config, grid, **changes), grid


def secrets_of(tmp_path: Path) -> list[Path]:
    """Files in which nodes hold the secrets of a round."""
    return list((tmp_path / "fed").rglob("session-*"))
