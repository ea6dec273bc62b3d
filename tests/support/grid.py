"""Nodes and a grid in this process: a federation without Flower's processes, whose nodes do as they are told."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from rebafl import simulate
from rebafl.federation.app.client_app import app as client_app
from rebafl.federation.app.node_config import PARTITION_ID
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.server import ask, fetch
from rebafl.federation.app.server import federate as server_side
from rebafl.federation.app.server.federate import federate
from rebafl.runs.record import Record
from support.toy import same_bits

CLIENTS = 4
STATEFUL = ("scaffold", "feddyn", "moon", "fedhbm")  # algorithms whose clients keep state
CONFIG = {
    "model": "mlp",
    "rounds": 3,
    "partition.clients": CLIENTS,
    "settings": "partition.samples=20 training.epochs=2 training.batch=8 training.lr=0.05",
    "deadline": 0.3,
    "min-nodes": 1,
    "wait": 0.2,
    "patience": 2,
}


class Node:
    """A SuperNode in this process: a key, a config, and a context that lasts as long as it does."""

    def __init__(self, part: int, run_config: dict, node_config: dict | None = None) -> None:
        self.node_id = 1000 + int(uuid.uuid4().hex[:12], 16)
        self.part, self.public_key = part, f"key {part}".encode()
        config = {PARTITION_ID: part} if node_config is None else node_config
        self.context = Context(
            run_id=1, node_id=self.node_id, node_config=config, state=RecordDict(), run_config=run_config
        )

    def answer(self, message: Message) -> Message:
        return client_app(message, self.context)


class FakeGrid:
    """A grid whose nodes answer at once, unless `conduct(part, round, reply)` says otherwise.

    It returns the reply, another one, None for silence, or "late": then it is there once the round is over.
    """

    def __init__(self, nodes, conduct=lambda part, round, reply: reply):
        self.nodes, self.conduct = list(nodes), conduct
        self.asked = []
        self.replies, self.late = {}, {}

    def get_nodes(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
            ids.append(message.metadata.message_id)
            self._deliver(message)
        return ids

    def _deliver(self, message):
        node = next(n for n in self.nodes if n.node_id == message.metadata.dst_node_id)
        part, round = node.part, int(message.metadata.group_id)
        self.asked.append((part, round, message.metadata.message_type))
        reply = node.answer(message)
        shown = self.conduct(part, round, reply) if round else reply
        if shown is not None and shown != "late":
            self.replies[message.metadata.message_id] = shown
        elif shown == "late":
            self.late[message.metadata.message_id] = (round, reply)

    def pull_messages(self, ids):
        newest = max(round for _, round, _ in self.asked)
        replies = [self.replies.pop(sent) for sent in ids if sent in self.replies]
        replies += [self.late[sent][1] for sent in ids if sent in self.late and self.late[sent][0] < newest]
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies


def nodes_of(config, state: Path | None = None):
    kept = {"state": str(state)} if state else {}
    return [Node(part, config, {PARTITION_ID: part, **kept}) for part in range(CLIENTS)]


def run(config, grid=None, **changes) -> Record:
    config = {**config, **changes}
    grid = grid or FakeGrid(nodes_of(config))
    for node in grid.nodes:
        node.context.run_config = config
    return federate(grid, *read_run_config(config))


def simulated(config, out: Path, **changes) -> Record:
    settings, _ = read_run_config(config)
    return simulate({**settings.plain(), "workers": 1, **changes}, out, say=lambda text: None)


def absent(tmp_path: Path, *away: tuple[int, int]) -> dict:
    """A participation in which these (client, round) are away and all others are there."""
    present = [f"{c},{r}" for r in range(1, 4) for c in range(CLIENTS) if (c, r) not in away]
    path = tmp_path / "trace.csv"
    path.write_text("client,round\n" + "\n".join(present) + "\n")
    return {"participation": {"kind": "trace", "path": str(path)}}


def same_server(a: Record, b: Record) -> bool:
    one, other = a.server(), b.server()
    return one.keys() == other.keys() and all(same_bits(one[group], other[group]) for group in one)


def asked_by(reply: Message) -> Message:
    """Something to reply to as `reply` does, from the SuperLink's own node."""
    message = Message(RecordDict(), 1, "train")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return message


def as_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower sets in the processes it starts; and nobody waits a whole second here."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    monkeypatch.setattr(ask, "POLL", 0.01)
    monkeypatch.setattr(fetch, "POLL", 0.01)
    monkeypatch.setattr(server_side, "HANDOVER", 0.0)
