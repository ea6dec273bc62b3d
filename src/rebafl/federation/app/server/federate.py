"""How does a federation run? Round after round over Flower's grid, each closed at its deadline and committed.

A round asks the clients that are connected, waits for their replies until the deadline and no longer, and is closed as
in the simulator.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor

from ....algorithms.hooks import own_mistakes
from ....algorithms.interface import Server
from ....algorithms.prototypes import PROTOTYPES
from ....base.config import plain
from ....base.errors import UserError
from ....base.words import one_line
from ....data import Data
from ....engines import InProcess, Outcome
from ....models.choice import Factory
from ....population.participation import Roster
from ....runs.events import RoundLine
from ....runs.experiment import Experiment, prepare
from ....runs.loggers import Logs, need_loggers
from ....runs.opening import check_same, open_record
from ....runs.record import Record
from ....runs.rounds import Absence, Checks, Round, Run
from ....runs.settings import Settings
from ....runs.stopping import forget_stop, honours_stop, is_over
from ....runs.summed import check_enough
from ....secagg.abort import Abort
from ....training.resources import one_thread
from ..masking import Call
from ..options import Options
from ..records import Malformed, Order, failure_of, read_classes, read_reply, shown, to_json
from .ask import Answers, ask, introductions, message_to, wait_for_clients
from .class_counts import FIRST_COUNTS, ClassCounts
from .fetch import Limit
from .masked_round import MaskedRound
from .members import CLAIMS, Members, MembersByClaim, MembersByKey
from .outliers import outliers

log = logging.getLogger("flwr")

FACTS = "federation"  # in environment.json: the facts of a run whose clients were real
HANDOVER = 30.0  # seconds to wait for a server that was just killed to release the run directory
FAILURE = "failure.txt"
MOST_LOSS = 1e3  # a model with a larger mean loss is beyond training: the round is discarded


def federate(
    grid: Grid, settings: Settings, options: Options, data: Data | None = None, model: Factory | None = None
) -> Record:
    """Start, or resume, the federation in directory `options.out`, up to `settings.rounds` rounds."""
    record = Record(Path(options.out))
    if settings.protect.secagg and not options.members:
        raise UserError(
            "protect.secagg needs the key of each client; name the file that holds them with members=FILE, or let "
            "`rebafl federation up` or `run` do it."
        )
    check_same(record, settings)
    need_loggers(settings.log)
    with one_thread(), own_mistakes(settings.algorithm):
        experiment = prepare(settings, data, model, log.info, noise="system")
    with record.locked(HANDOVER), one_thread(), _failure_noted(record), own_mistakes(settings.algorithm):
        check_same(record, settings)
        facts = {FACTS: {"run": uuid.uuid4().hex, **plain(options)}}
        server = open_record(record, experiment, facts, options.accept_changes)
        for warning in experiment.warnings:
            log.warning("%s", warning)
        federation = FederationServer(grid, experiment, options, record, server)
        log.info("%s: %s of %s rounds are done.", record.path, record.round, settings.rounds)
        forget_stop(record.path)
        with Logs(record, settings.log, log.warning) as logs:
            while not is_over(record, settings) and not honours_stop(record.path, record.round):
                federation.round()
                logs.follow()
    return record


@contextmanager
def _failure_noted(record: Record) -> Iterator[None]:
    """Leave the reason why a run ended early in its directory: Flower may show what a ServerApp logs to nobody."""
    note = record.path / FAILURE
    note.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        if record.begun:
            with suppress(OSError):  # the disk may be full, which is then the reason
                note.write_text(f"{error if isinstance(error, UserError) else one_line(error)}\n", encoding="utf-8")
        raise


class FederationServer:
    """The server's side of a run."""

    def __init__(self, grid: Grid, experiment: Experiment, options: Options, record: Record, server: Server) -> None:
        self.grid, self.experiment, self.options, self.record = grid, experiment, options, record
        self.members = self._members()
        self.id = str(record.environment()[FACTS]["run"])
        self.last_used = {client: line.round for line in record.rounds() for client in line.used}
        self.rounds_without_update = 0
        self.was_discarded = any(line.discarded for line in record.rounds())
        self.began, self.first_round = time.perf_counter(), record.round
        samples = options.max_samples or len(experiment.work.data.y_train)
        checks = Checks(samples, options.max_norm or math.inf, options.max_value, MOST_LOSS, states=False)
        engine = InProcess(experiment.work)  # for scores only
        self.run = Run(experiment, record, engine, checks, server, knows_split=options.counts == "split")
        protect, shared = experiment.settings.protect, experiment.settings.algorithm.shared_template(server)
        self.class_counts = ClassCounts(
            record.path / FIRST_COUNTS, options.counts, experiment.work.split, protect, prototypes=PROTOTYPES in shared
        )
        self.limit = self._limit()

    def round(self) -> None:
        """Ask the connected clients, wait until the deadline, close the round."""
        chosen = self.run.roster().trains
        with self.run.next_round() as round:  # its seconds include the wait for nodes
            round.progress.say("waiting", len(chosen))
            connected = wait_for_clients(self.grid, self.members, chosen, self.options) if chosen else {}
            asked = {client: connected[client] for client in sorted(chosen) if client in connected}
            round.progress.say("training", len(asked))
            if self.experiment.settings.protect.holders == "announced":
                round.announce(self._announced(round, asked))
            failed = ""
            if self.run.averages:
                answers, restarted, failed = self._collect_sum(round, asked)
            else:
                answers, restarted = self._collect(round, asked)
            who = Roster(tuple(asked), tuple(client for client in asked if client not in answers.missing))
            # before the round is committed: a server that dies in between must not forget what a client reported
            self.class_counts.remember({upload.client: upload.counts.tolist() for upload in round.uploads})
            line = round.close(who, self._absence(chosen, connected, answers), restarted, failed)
        self.last_used |= dict.fromkeys(line.used, line.round)
        self.was_discarded |= bool(line.discarded)
        self._report(line)
        if chosen:
            self._check_patience(line)

    def _members(self) -> Members:
        """Which node is which client: by the members file, or as nodes claim."""
        clients = self.experiment.task.clients
        if self.options.members:
            return MembersByKey(Path(self.options.members), clients)
        introduce = partial(introductions, self.grid, deadline=self.options.deadline)
        return MembersByClaim(self.record.path / CLAIMS, clients, introduce)

    @property
    def keys(self) -> Mapping[int, bytes]:
        """The clients' public keys, which masked rounds need."""
        return self.members.keys if isinstance(self.members, MembersByKey) else {}

    def _absence(self, chosen: Sequence[int], connected: Mapping[int, int], answers: Answers) -> Absence:
        away = [c for c in range(self.experiment.task.clients) if c not in connected] if chosen else []
        unreached = [client for client in sorted(chosen) if client not in connected]
        return Absence(answers.missing, sorted(answers.late), unreached, away)

    def _collect(self, round: Round, asked: Mapping[int, int]) -> tuple[Answers, list[int]]:
        """Send the orders and use the replies as they come; who answered, and who had lost its state."""
        restarted = []

        def use(client: int, reply: Message) -> None:
            outcome, lost_state = self._outcome(reply, client, round.number)
            round.take(outcome)
            restarted.extend([client] if lost_state else [])

        messages = {
            client: message_to(asked[client], order.record(), "train", str(round.number), self.options.deadline)
            for client, order in self._orders(round, asked).items()
        }
        answers = ask(self.grid, messages, self.options.deadline, self.limit, use)
        for client, reason in answers.broken.items():
            round.take(Outcome(client, failure=reason))
        for client, reason in outliers(round.uploads, compare_changes=self.was_discarded).items():
            round.refuse(client, reason)
        return answers, sorted(restarted)

    def _collect_sum(self, round: Round, asked: Mapping[int, int]) -> tuple[Answers, list[int], str]:
        """The same for a masked round; and why it failed, if it did."""
        assert self.run.averages is not None
        if not asked:
            return Answers(), [], ""
        orders = self._orders(round, asked)
        call = Call.new(tuple(asked), self.run.averages.most_samples)
        try:
            check_enough(len(asked), len(asked), self.run.experiment.work.protect)
            terms = call.terms(
                next(iter(orders.values())), self.keys, self.run.averages, self.run.experiment.work.protect
            )
        except Abort as impossible:
            return Answers(), [], str(impossible)
        masked = MaskedRound(self.grid, asked, self.id, round.number, terms, self.options.deadline)
        outcome = masked.collect({client: call.record(order) for client, order in orders.items()})
        for client, reason in outcome.refused.items():
            round.take(Outcome(client, failure=reason))
        if outcome.total is not None:
            round.take_sum(outcome.total, outcome.survivors)
        round.stages = outcome.stages
        connected = {node.node_id for node in self.grid.get_nodes()} if outcome.missing else set()
        late = {client for client in outcome.missing if asked[client] in connected}
        return Answers(missing=outcome.missing, late=late), sorted(outcome.restarted), outcome.failed

    def _announced(self, round: Round, asked: Mapping[int, int]) -> list[Tensor]:
        """The first exchange: which classes those who are there will share. Who does not answer counts for none."""
        announced: dict[int, Tensor] = {}

        def use(client: int, reply: Message) -> None:
            try:
                told = read_classes(reply.content, client, round.number, self.experiment.task.classes)
                if objection := self.class_counts.objection_to_classes(client, told):
                    raise Malformed(objection)
                announced[client] = told
            except Exception as error:  # a node may send anything
                log.warning("Round %s: client %s announced no classes: %s.", round.number, client, shown(str(error)))

        questions = {
            client: message_to(asked[client], order.question(), "query", str(round.number), self.options.deadline)
            for client, order in self._orders(round, asked).items()
        }
        ask(self.grid, questions, self.options.deadline, Limit(), use)
        return [announced[client] for client in sorted(announced)]

    def _limit(self) -> Limit:
        """What a reply may hold, by what is expected of one."""
        expected = self.experiment.expected_upload(self.experiment.first_server())
        return Limit.around(expected.bytes, len(expected.change) + len(expected.shared))

    def _orders(self, round: Round, asked: Iterable[int]) -> dict[int, Order]:
        data, inputs = self.experiment.work.data, to_json(plain(self.experiment.work.data.inputs))
        states = {client: self.last_used.get(client, 0) if round.state else 0 for client in asked}
        return {
            client: Order(self.id, client, round.number, state, inputs, data.digest, round.sent)
            for client, state in states.items()
        }

    def _outcome(self, reply: Message, client: int, number: int) -> tuple[Outcome, bool]:
        """A reply, checked; and whether the client had lost its state."""
        try:
            if failure := failure_of(reply.content):
                return Outcome(client, failure=shown(failure)), False
            read = read_reply(reply.content, client, number, self.limit.bytes)
        except Exception as error:  # a node may send anything
            return Outcome(client, failure=shown(f"malformed: {error}")), False
        if objection := self.class_counts.objection(read.upload):
            return Outcome(client, failure=shown(objection)), False
        return Outcome(client, read.upload), read.fresh

    def _report(self, line: RoundLine) -> None:
        done, rounds = line.round, self.experiment.settings.rounds
        seconds_per_round = (time.perf_counter() - self.began) / (done - self.first_round)
        log.info(
            "Round %s/%s: %s of %s clients used, accuracy %.2f, %.0f s; about %.0f min left.",
            done, rounds, len(line.used), len(line.active), line.accuracy, line.seconds,
            seconds_per_round * (rounds - done) / 60,
        )  # fmt: skip
        if line.discarded:
            log.warning("Round %s was discarded, and the model left as it was: %s.", done, line.discarded)
        for client, reason in {**line.missing, **line.refused}.items():
            log.warning("Round %s: client %s was left out: %s.", done, client, reason)

    def _check_patience(self, line: RoundLine) -> None:
        """End the run after too many rounds in a row without an update."""
        self.rounds_without_update = 0 if line.updated else self.rounds_without_update + 1
        if self.rounds_without_update >= self.options.patience:
            reasons = {**line.missing, **line.refused}
            last = "; ".join(f"client {client}: {reason}" for client, reason in list(reasons.items())[:3])
            raise UserError(
                f"{self.rounds_without_update} rounds in a row brought no usable reply "
                f"({last or line.discarded or 'nobody'}); "
                "put that right, or raise deadline, and run the same command again to resume."
            )
