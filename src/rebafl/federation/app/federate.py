"""How does a federation go? Round after round over Flower's grid, each closed at its deadline and committed.

A round asks the clients that are connected, waits for their replies until the deadline and no longer, and is
closed as in the simulator. Replies are looked for by the message they answer, and those of earlier rounds
are not looked for any more: a straggler's upload cannot get into a later round. Whatever a node does, it costs
that node's update and nothing else.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from ...algorithms.hooks import own_mistakes
from ...algorithms.interface import Server
from ...algorithms.prototypes import PROTOTYPES
from ...base.config import plain
from ...base.errors import UserError
from ...base.tensors import size
from ...data import Data
from ...engines import InProcess, Outcome
from ...engines.engine import failure_text
from ...models.choice import Factory
from ...population.participation import Roster
from ...runs.events import RoundLine
from ...runs.experiment import Experiment, prepare
from ...runs.record import Record
from ...runs.rounds import FEDERATION, Checks, Round, Run, check_same, open_record
from ...runs.settings import Settings
from ...training.resources import one_thread
from .census import TABLE as COUNTS
from .census import Census
from .fetch import Limit, Refused, fetched
from .members import TABLE, Bound, Claimed, read_members
from .options import Options
from .peers import standing_out
from .records import Order, failure_of, read_reply, shown, to_json

log = logging.getLogger("flwr")

POLL = 1.0  # seconds between two looks for nodes
GRACE = 10.0  # seconds that a message outlives its round, so that the last look at it finds it
HANDOVER = 30.0  # seconds to wait for a server that was just killed to let go of the run directory
FAILURE = "failure.txt"
MOST_LOSS = 1e3  # a model with a larger mean loss is beyond training: the round is not taken
GONE = {3, 4, 5}  # Flower's error codes for a node or a message that is not there any more


def federate(
    grid: Grid, settings: Settings, options: Options, data: Data | None = None, model: Factory | None = None
) -> Record:
    """Run, or go on with, the federation in directory `options.out`, up to `settings.rounds` rounds."""
    record = Record(Path(options.out))
    check_same(record, settings)
    with one_thread(), own_mistakes(settings.algorithm):
        experiment = prepare(settings, data, model, log.info, noise="system")
    with record.locked(HANDOVER), one_thread(), _failure_noted(record), own_mistakes(settings.algorithm):
        check_same(record, settings)
        facts = {"run": uuid.uuid4().hex, **plain(options)}
        server = open_record(record, experiment, facts, options.accept_changes)
        for warning in experiment.warnings:
            log.warning("%s", warning)
        federation = FederationServer(grid, experiment, options, record, server)
        log.info("%s: %s of %s rounds are done.", record.path, record.round, settings.rounds)
        while record.round < settings.rounds:
            federation.round()
    return record


@contextmanager
def _failure_noted(record: Record) -> Iterator[None]:
    """Leave the reason why a run ended early in its directory: Flower may show what a ServerApp says to nobody."""
    note = record.path / FAILURE
    note.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        if record.begun:
            with suppress(OSError):  # the disk may be full, which is then the reason
                note.write_text(f"{error if isinstance(error, UserError) else failure_text(error)}\n", encoding="utf-8")
        raise


Use = Callable[[int, Message], None]
"""Hears of each reply as it comes: the client or node, and what it answered."""


@dataclass
class Answers:
    """Who answered, why others did not, and whose reply could not even be read; by client or node."""

    replied: set[int] = field(default_factory=set)
    missing: dict[int, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def settled(self, key: int) -> bool:
        return key in self.replied or key in self.missing or key in self.broken

    def note(self, key: int, found: Message | Refused, asked: Message, use: Use) -> None:
        """What was fetched in answer to this message."""
        if isinstance(found, Refused):
            self.broken[key] = shown(str(found))
        elif found.has_error() and found.error.code in GONE:
            self.missing[key] = f"the node or its reply is gone (Flower's error {found.error.code})"
        elif found.has_error():
            self.broken[key] = shown(f"its app failed with Flower's error {found.error.code}: {found.error.reason}")
        elif reason := _astray(found, asked):
            self.broken[key] = shown(reason)
        else:
            self.replied.add(key)
            use(key, found)


class FederationServer:
    """The server's side of a run."""

    def __init__(self, grid: Grid, experiment: Experiment, options: Options, record: Record, server: Server) -> None:
        self.grid, self.experiment, self.options, self.record = grid, experiment, options, record
        clients = experiment.task.clients
        self.members = (
            Bound(read_members(Path(options.members), clients))
            if options.members
            else Claimed(record.path / TABLE, clients, self._introductions)
        )
        self.id = str(record.environment()[FEDERATION]["run"])
        self.last_taken = {client: line.round for line in record.rounds() for client in line.used}
        self.in_vain = 0
        self.wary = any(line.discarded for line in record.rounds())
        self.began, self.first = time.perf_counter(), record.round
        samples = options.max_samples or len(experiment.work.data.y_train)
        checks = Checks(samples, options.max_norm or math.inf, options.max_value, MOST_LOSS, states=False)
        engine = InProcess(experiment.work)  # for scores only
        self.run = Run(experiment, record, engine, checks, server)
        shared = experiment.settings.algorithm.shared_template(server)
        self.census = Census(
            record.path / COUNTS,
            options.counts,
            experiment.work.split,
            experiment.settings.protect,
            prototypes=PROTOTYPES in shared,
        )
        self.limit = self._limit()

    def round(self) -> None:
        """Ask those who are there, wait until the deadline, close the round."""
        chosen = self.run.roster().trains
        with self.run.next_round() as round:  # its seconds include the wait for nodes
            asked = self._gather(chosen) if chosen else {}
            missing, restarted = self._collect(round, asked)
            who = Roster(tuple(asked), tuple(client for client in asked if client not in missing))
            # before the round is committed: a server that dies in between must not forget what a client said
            self.census.settle({upload.client: upload.counts.tolist() for upload in round.uploads})
            line = round.close(who, missing, restarted)
        self.last_taken |= dict.fromkeys(line.used, line.round)
        self.wary |= bool(line.discarded)
        self._report(line)
        if chosen:
            self._mind(line)

    def _collect(self, round: Round, asked: Mapping[int, int]) -> tuple[dict[int, str], list[int]]:
        """Send the orders and take the replies in as they come; who did not answer, and who had to start afresh."""
        restarted = []

        def use(client: int, reply: Message) -> None:
            outcome, fresh = self._outcome(reply, client, round.number)
            round.take(outcome)
            restarted.extend([client] if fresh else [])

        answers = ask(self.grid, self._orders(round, asked), self.options.deadline, self.limit, use)
        for client, reason in answers.broken.items():
            round.take(Outcome(client, failure=reason))
        for client, reason in standing_out(round.uploads, self.wary).items():
            round.refuse(client, reason)
        return answers.missing, sorted(restarted)

    def _limit(self) -> Limit:
        """What a reply may hold, by what is expected of one."""
        algorithm, server = self.experiment.settings.algorithm, self.experiment.first_server()
        change, shared = algorithm.uploaded(server.weights), algorithm.shared_template(server)
        counts = {"counts": torch.zeros(self.experiment.task.classes, dtype=torch.int64)}
        return Limit.around(size(change) + size(shared) + size(counts), len(change) + len(shared))

    def _gather(self, chosen: tuple[int, ...]) -> dict[int, int]:
        """The chosen clients that are connected, and their nodes; waits until there are enough, but not for ever.

        If enough are there but none of the chosen, they count as away once the deadline has passed.
        """
        began, wanted = time.monotonic(), self.options.min_nodes
        until = began + self.options.wait
        said = False
        while True:
            there = self.members.clients(self.grid.get_nodes())
            asked = {client: there[client] for client in sorted(chosen) if client in there}
            if len(there) >= wanted and (asked or time.monotonic() >= began + self.options.deadline):
                return asked
            if len(there) < wanted and time.monotonic() >= until:
                raise UserError(
                    f"Only {len(there)} of at least {wanted} nodes were connected after {self.options.wait:g} s; "
                    "start more nodes, or lower min-nodes, and run the same command again to go on."
                )
            if not said:
                log.info("Waiting for nodes: %s of at least %s are connected.", len(there), wanted)
                said = True
            time.sleep(POLL)

    def _orders(self, round: Round, asked: Mapping[int, int]) -> dict[int, Message]:
        data, inputs = self.experiment.work.data, to_json(plain(self.experiment.work.data.inputs))
        orders = {}
        for client, node in asked.items():
            state = self.last_taken.get(client, 0) if round.state else 0
            order = Order(self.id, client, round.number, state, inputs, data.digest, round.sent)
            orders[client] = self._message(order.record(), node, "train", str(round.number))
        return orders

    def _message(self, content: RecordDict, node: int, kind: str, group: str) -> Message:
        return Message(content, node, kind, ttl=self.options.deadline + GRACE, group_id=group)

    def _outcome(self, reply: Message, client: int, number: int) -> tuple[Outcome, bool]:
        """A reply, checked; and whether the client had to start afresh."""
        try:
            if failure := failure_of(reply.content):
                return Outcome(client, failure=shown(failure)), False
            read = read_reply(reply.content, client, number, self.limit.bytes)
        except Exception as error:  # a node may send anything
            return Outcome(client, failure=shown(f"malformed: {error}")), False
        if objection := self.census.objection(read.upload):
            return Outcome(client, failure=shown(objection)), False
        return Outcome(client, read.upload), read.fresh

    def _introductions(self, nodes: list[int]) -> dict[int, int | None]:
        """What these nodes say of themselves."""
        log.info("Asking %s new nodes which part of the data they hold.", len(nodes))
        queries = {node: self._message(RecordDict(), node, "query", "0") for node in nodes}
        said: dict[int, int | None] = {}
        ask(
            self.grid,
            queries,
            self.options.deadline,
            Limit(),
            lambda node, reply: said.update({node: _introduced(reply)}),
        )
        return said

    def _report(self, line: RoundLine) -> None:
        done, rounds = line.round, self.experiment.settings.rounds
        each = (time.perf_counter() - self.began) / (done - self.first)
        log.info(
            "Round %s/%s: %s of %s clients used, accuracy %.2f, %.0f s; about %.0f min left.",
            done, rounds, len(line.used), len(line.active), line.accuracy, line.seconds,
            each * (rounds - done) / 60,
        )  # fmt: skip
        if line.discarded:
            log.warning("Round %s was discarded, and the model left as it was: %s.", done, line.discarded)
        for client, reason in {**line.missing, **line.refused}.items():
            log.warning("Round %s: client %s was left out: %s.", done, client, reason)

    def _mind(self, line: RoundLine) -> None:
        """End the run after too many rounds in a row without an update."""
        self.in_vain = 0 if line.updated else self.in_vain + 1
        if self.in_vain >= self.options.patience:
            reasons = {**line.missing, **line.refused}
            last = "; ".join(f"client {client}: {reason}" for client, reason in list(reasons.items())[:3])
            raise UserError(
                f"{self.in_vain} rounds in a row brought no usable reply ({last or line.discarded or 'nobody'}); "
                "put that right, or raise deadline, and run the same command again to go on."
            )


def ask(grid: Grid, messages: Mapping[int, Message], deadline: float, limit: Limit, use: Use) -> Answers:
    """Send these messages and hand on the replies that come before the deadline."""
    until = time.monotonic() + deadline
    answers = Answers()
    sent: dict[str, int] = {}
    for key, message in messages.items():
        if sent_id := _sent(grid, message):
            sent[sent_id] = key
        else:
            answers.missing[key] = "the message could not be sent"
    for key, found in fetched(grid, sent, until, limit):
        answers.note(key, found, messages[key], use)
    if silent := [key for key in sent.values() if not answers.settled(key)]:
        grid.get_nodes()  # if the SuperLink itself does not answer, nobody is to blame, and the round is not over
        answers.missing |= dict.fromkeys(silent, f"no complete reply within {deadline:g} s")
    answers.missing = dict(sorted(answers.missing.items()))
    return answers


def _sent(grid: Grid, message: Message) -> str:
    """The id under which a message was sent; empty if it could not be."""
    try:
        return next(iter(grid.push_messages([message])), "") or ""
    except (httpx.HTTPStatusError, ObjectPushError):  # its node may be gone since
        return ""


def _astray(reply: Message, asked: Message) -> str | None:
    """Why a reply is not the answer to this message, or None."""
    found, expected = reply.metadata, asked.metadata
    if found.src_node_id != expected.dst_node_id:
        return "the reply came from another node"
    if found.reply_to_message_id != expected.message_id:
        return "the reply answers another message"
    if (found.message_type, found.group_id) != (expected.message_type, expected.group_id):
        return f"the reply is of type {found.message_type!r:.40} and group {found.group_id!r:.40}"
    if not (math.isfinite(found.created_at) and math.isfinite(found.ttl) and found.ttl > 0):
        return f"the reply is of time {found.created_at} and lasts {found.ttl} s"
    return None if reply.has_content() else "the reply is empty"


def _introduced(reply: Message) -> int | None:
    note = reply.content.config_records.get("note")
    said = note.get("partition-id") if note else None
    return said if type(said) is int else None
