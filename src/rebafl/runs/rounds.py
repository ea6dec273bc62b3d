"""How does a round become real? Uploads are checked as they arrive, aggregated, scored and committed.

It is the same wherever the clients were trained, in a simulation or on machines of their own.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

from torch import Tensor

from ..algorithms.aggregate import Upload, mismatch, not_finite, refusal, unlike
from ..algorithms.hooks import SEE, checked_tensors
from ..algorithms.interface import Sent, Server
from ..algorithms.prototypes import PROTOTYPES
from ..base.config import Plain
from ..base.errors import UserError
from ..base.tensors import Tensors, size
from ..engines import Engine, Outcome
from ..population.participation import Roster
from ..secagg.abort import Abort
from ..secagg.fixed_point import Vector
from ..training.evaluate import diversity
from .accountant import accountant_of
from .aggregation import NextServer, next_server, next_server_by_sum
from .events import RoundLine
from .experiment import Experiment
from .holdings import noted
from .progress import ProgressFile
from .prototypes import keep_prototypes
from .record import Record
from .scores import Scores, carried_on, over_clients, scores_of
from .spool import Spool
from .summed import Summed


@dataclass(frozen=True)
class Checks:
    """What an upload, and the model made of uploads, is held against besides its shape.

    `norm` and `value` bound how far the weights move and every number; `loss` is the most a round may end with.
    `states` says whether clients hand their next state in. `samples` is the most that a client may show, `fewest` the
    least.
    """

    samples: int
    norm: float = math.inf
    value: float = math.inf
    loss: float = math.inf
    states: bool = True
    fewest: int = 1

    def refusal(self, upload: Upload, expected: Upload) -> str | None:
        """Why an upload cannot be used, or None; `expected` shows what it must look like."""
        return refusal(
            upload,
            expected.change,
            expected.shared,
            len(expected.counts),
            self.samples,
            self.norm,
            self.value,
            self.fewest,
        )

    def unusable(self, loss: float, before: Callable[[], float]) -> str:
        """Why a model with this loss must not become the run's, or ''; one that was bad `before` may get better."""
        if math.isfinite(loss) and (loss <= self.loss or loss <= before()):
            return ""
        return f"the loss on the test data would be {loss:.4g}"


@dataclass(frozen=True)
class Absence:
    """What a federation knows of clients that did not answer; `RoundLine` says what each entry means."""

    missing: Mapping[int, str] = field(default_factory=dict)
    late: Sequence[int] = ()
    unreached: Sequence[int] = ()
    disconnected: Sequence[int] = ()


NOBODY_ABSENT = Absence()


class Run:
    """A run in progress: what it starts from, where it is recorded, who scores, and the server after the last round."""

    def __init__(
        self,
        experiment: Experiment,
        record: Record,
        engine: Engine,
        checks: Checks,
        server: Server,
        knows_split: bool = True,
    ) -> None:
        self.experiment, self.record, self.engine = experiment, record, engine
        self.server = server
        self.holdings = noted(experiment, record.path, knows_split)
        protect = experiment.settings.protect
        most = protect.most_samples(checks.samples, experiment.task.classes)
        self.checks = replace(checks, samples=most, fewest=protect.fewest_samples)
        self.averages = experiment.averages(server, checks.samples) if protect.secagg else None
        self.accountant = accountant_of(protect)
        if not knows_split and experiment.settings.evaluate.clients != "none":
            raise UserError("evaluate.clients needs a simulation: the server of a federation has no client's data.")
        lines = record.rounds() if record.begun else []
        self.last = lines[-1] if lines else None
        self.sent_by: Counter[int] = Counter()  # noisy uploads by client; one that was lost may have been seen
        if self.accountant:
            for line in lines:
                self.sent_by.update(line.active)

    def roster(self) -> Roster:
        """Who takes part in the next round: without those who have spent their budget."""
        who = self.experiment.roster(self.record.round + 1)
        spent = self.spent(who)
        left = [tuple(client for client in part if client not in spent) for part in (who.trains, who.arrives)]
        return Roster(*left) if spent else who

    def spent(self, who: Roster) -> set[int]:
        """Those clients to whom the budget allows no more uploads."""
        accountant = self.accountant
        return {c for c in who.trains if not accountant.allows(self.sent_by[c])} if accountant else set()

    @contextmanager
    def next_round(self) -> Iterator[Round]:
        """The next round, open for uploads; it counts once it was closed."""
        with Spool(self.record.path) as spool:
            yield Round(self, spool)


class Round:
    """One round: uploads are checked as they arrive and kept until all are there; then it is closed.

    Uploads go to the spool, next states to the disk: little of either stays in memory.
    """

    def __init__(self, run: Run, spool: Spool) -> None:
        self.began = time.perf_counter()
        self.run, self.spool, self.number = run, spool, run.record.round + 1
        self.experiment, self.record, self.server, self.checks = run.experiment, run.record, run.server, run.checks
        algorithm, self.protect = run.experiment.settings.algorithm, run.experiment.settings.protect
        extra = checked_tensors(algorithm, "broadcast", algorithm.broadcast(self.server))
        self.sent = Sent(self.server.weights, extra)
        self.expected = run.experiment.expected_upload(self.server)
        self.state = run.experiment.expected_state(self.server)
        self.progress = ProgressFile(self.record.path, self.number)
        self.failures: dict[int, str] = {}  # clients that raised, or whose upload has another form than it must have
        self.stages: dict[str, int] = {}
        self.sum = Summed(run.averages, self.protect) if run.averages else None
        self._uploads: dict[int, Upload] = {}
        self._refused: dict[int, str] = {}

    def announce(self, shown: Sequence[Tensor]) -> None:
        """Before anybody trains: those who take part said which classes they hold, and are told which too few do."""
        if PROTOTYPES in self.expected.shared:
            self.sent = replace(self.sent, unshared=self.protect.unshared(shown))

    def take(self, outcome: Outcome) -> None:
        """Use an upload, or note why it is not used."""
        self.progress.client_done()
        if outcome.upload is None:
            self.failures[outcome.client] = self._refused[outcome.client] = outcome.failure
        elif reason := self._refusal(outcome.upload, outcome.state or {}) or self._keep(outcome.upload):
            self._refused[outcome.client] = reason
            if self._malformed(outcome.upload, outcome.state or {}):
                self.failures[outcome.client] = f"{reason} ({SEE})"
        elif outcome.state:
            self.record.keep_state(outcome.client, outcome.state)

    def _keep(self, upload: Upload) -> str:
        """Until the round is closed, or as a part of the sum only; why that cannot be, or ''."""
        received = self.protect.received(upload)
        if self.sum is None:
            self._uploads[upload.client] = self.spool.keep(received)
            return ""
        try:
            self.sum.add(received)
        except Abort as reason:
            return str(reason)
        return ""

    def take_sum(self, total: Vector, clients: Sequence[int]) -> None:
        """Use the sum of these clients' uploads, which was made elsewhere."""
        assert self.sum is not None
        self.sum.put(total, clients)

    def refuse(self, client: int, reason: str) -> None:
        """Do not use an upload after all: beside the others of its round it cannot be right."""
        del self._uploads[client]
        self._refused[client] = reason

    def _refusal(self, upload: Upload, state: Tensors) -> str | None:
        if reason := self.checks.refusal(upload, self.expected):
            return reason
        if objection := self.protect.objection(upload):
            return objection
        reason = mismatch(state, self.state) if self.checks.states else None
        return f"next state: {reason}" if reason else None

    def _malformed(self, upload: Upload, state: Tensors) -> bool:
        """Is it the form that is wrong, names, shapes or types, as it would be in every round?"""
        pairs = ((upload.change, self.expected.change), (upload.shared, self.expected.shared), (state, self.state))
        return any(unlike(tensors, like) for tensors, like in pairs[: 3 if self.checks.states else 2])

    @property
    def uploads(self) -> list[Upload]:
        """Those that are used, in client-id order whatever the order of arrival; none where only a sum is known."""
        return [self._uploads[client] for client in sorted(self._uploads)]

    @property
    def used(self) -> bool:
        """Is there anything to aggregate?"""
        return bool(self.sum.clients if self.sum else self._uploads)

    @property
    def refused(self) -> dict[int, str]:
        return dict(sorted(self._refused.items()))

    def close(
        self, who: Roster, absence: Absence = NOBODY_ABSENT, restarted: Sequence[int] = (), failed: str = ""
    ) -> RoundLine:
        """Aggregate, score, commit: what the record says of the round, and the run has its next server.

        `failed` says why there is nothing to aggregate although clients took part.
        """
        self.progress.say("scoring")
        server, hidden, discarded = (self.server, [], failed) if failed else self._aggregated(len(who.trains))
        server, wrong, scores = self._scored(server)
        discarded = wrong or discarded
        line = RoundLine(
            round=self.number,
            active=who.trains,
            lost=sorted(set(who.trains) - set(who.arrives)),
            refused=self.refused,
            updated=self.used and not discarded,
            diversity=self._diversity(),
            bytes_up=len(who.trains) * (self.sum.bytes if self.sum else self.expected.bytes),
            bytes_down=len(who.trains) * (size(self.sent.weights) + size(self.sent.extra)),
            seconds=round(time.perf_counter() - self.began, 3),
            missing=absence.missing,
            late=absence.late,
            unreached=absence.unreached,
            disconnected=absence.disconnected,
            restarted=restarted,
            discarded=discarded,
            hidden=hidden,
            masked=self.stages,
            unshared=self.sent.unshared,
            **scores,
            **self._privacy(who),
        )
        if self.run.holdings.learn(self.uploads):
            self.run.holdings.write(self.record.path)
        if self.experiment.settings.keep_prototypes:
            keep_prototypes(self.record.path, self.number, server)
        self.record.commit(line, {"weights": server.weights, "state": server.state}, keep_states=line.updated)
        self.run.server, self.run.last = server, line
        self.run.sent_by.update(who.trains if self.run.accountant else ())
        return line

    def _scored(self, server: Server) -> tuple[Server, str, Plain]:
        """The new server, or the old one and why the new cannot be right; and what the record says of its scores."""
        settings, last = self.experiment.settings, self.run.last
        if last is not None and not settings.evaluate.is_due(self.number):
            wrong = "" if server is self.server else not_finite(server.weights) or ""
            return self.server if wrong else server, wrong, carried_on(last)
        engine, wrong = self.run.engine, ""
        held_out = self.experiment.work.data.validation is not None
        scores = scores_of(engine, settings.algorithm, server, held_out)
        if server is not self.server:
            before = cache(lambda: scores_of(engine, settings.algorithm, self.server, held_out))  # seldom needed
            if wrong := self.checks.unusable(scores.loss, lambda: before().loss):
                server, scores = self.server, before()
        return server, wrong, {**scores.plain(), **self._over_clients(server, scores)}

    def _over_clients(self, server: Server, scores: Scores) -> Plain:
        """How good the model is for each client, if that is to be measured in this round."""
        evaluate = self.experiment.settings.evaluate
        if not evaluate.clients_due(self.number):
            return {}
        engine, split = self.run.engine, self.experiment.work.split
        models = self.experiment.settings.algorithm.scored(server)
        if len(models) > 1:  # each client has its own, and there is none to fine-tune
            recalls = {client: engine.score(model).recall for client, model in enumerate(models)}
            return {"over_clients": over_clients(split, recalls)}
        found = over_clients(split, dict.fromkeys(range(split.clients), scores.recall))
        if evaluate.clients == "tuned":
            tuned = dict(engine.tune(models[0], self.number, range(split.clients), evaluate.epochs))
            found |= {f"tuned_{name}": value for name, value in over_clients(split, tuned).items()}
        return {"over_clients": found}

    def _aggregated(self, asked: int) -> NextServer:
        """The next server, the classes whose prototypes it does not pass on, and why it is the old one if it is."""
        if self.sum is not None:
            return next_server_by_sum(self.experiment, self.number, self.server, self.sum, asked)
        return next_server(self.experiment, self.number, self.server, self.uploads, self.sent.unshared)

    def _privacy(self, who: Roster) -> Plain:
        """What was given away by the end of this round, behind which noise, and who has spent the budget."""
        if not self.run.accountant:
            return {}
        sent = self.run.sent_by + Counter(who.trains)
        epsilon = self.run.accountant.epsilon(max(sent.values(), default=0))
        spent = sorted(self.run.spent(self.experiment.roster(self.number)))
        return {"epsilon": epsilon, "noise_source": self.experiment.work.noise, "spent": spent}

    def _diversity(self) -> float | None:
        changes = [upload.change for upload in self.uploads]
        return diversity(changes, [n for n in changes[0] if n in self.experiment.parameters]) if changes else None
