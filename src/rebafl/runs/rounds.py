"""What do all runs share, simulated or real? How a run directory is opened, and how a round is closed.

A round is closed in the same way wherever its clients were trained: refuse what cannot be right, aggregate,
score, commit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..algorithms.aggregate import Upload, mismatch, not_finite, refusal
from ..algorithms.hooks import checked_server, checked_tensors, checked_weights
from ..algorithms.interface import Algorithm, Sent, Server
from ..base.config import Plain, plain
from ..base.errors import UserError, exists
from ..base.tensors import Tensors, size
from ..engines import Engine, Outcome
from ..population.participation import Roster
from ..training.evaluate import diversity
from .accountant import accountant_of
from .environment import changed_facts, machine
from .events import RoundLine
from .experiment import Experiment
from .origin import NEED_A_WORD, OWN_CODE, WENT_ON, doubts, latest, sentence
from .record import CONFIG, SETTINGS_DIGEST, Record
from .settings import Settings, apart_from_kept, complete, differences
from .spool import Spool

FEDERATION = "federation"  # in environment.json: the facts of a run whose clients were real


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

    def refusal(self, upload: Upload, change: Tensors, shared: Tensors, classes: int) -> str | None:
        return refusal(upload, change, shared, classes, self.samples, self.norm, self.value, self.fewest)

    def unusable(self, loss: float, before: Callable[[], float]) -> str:
        """Why a model with this loss must not become the run's, or ''; one that was bad `before` may get better."""
        if math.isfinite(loss) and (loss <= self.loss or loss <= before()):
            return ""
        return f"the loss on the test data would be {loss:.4g}"


def check_same(record: Record, settings: Settings) -> None:
    """A directory belongs to its settings: going on with others would mix two experiments."""
    if not record.begun:
        if reason := record.in_the_way():
            raise UserError(f"{record.path} cannot hold a new run ({reason}); choose another out=DIRECTORY.")
        if not exists(record.path / CONFIG):
            return
    stored = complete(record.config(), settings)
    if unlike := differences(apart_from_kept(stored), apart_from_kept(settings.plain())):
        raise UserError(
            f"{record.path} holds a run with other settings ({'; '.join(unlike[:3])}); choose another out=DIRECTORY."
        )


def open_record(
    record: Record, experiment: Experiment, federation: Plain | None = None, accept_changes: bool = False
) -> Server:
    """Create the directory, or pick up where it stands; `federation` are the facts of one that is new.

    `accept_changes` is the user's word that a run may be gone on with other own code or another kind of bits.
    """
    settings = experiment.settings
    if not record.begun:
        extra = {FEDERATION: federation} if federation is not None else {}
        first = experiment.first_server()
        record.create(settings.plain(), {**_environment(experiment), **extra})
        return first
    facts = record.environment()
    if (FEDERATION in facts) != (federation is not None):
        there = "a federation" if FEDERATION in facts else "a simulation"
        raise UserError(
            f"{record.path} holds the run of {there}, which keeps its clients' state elsewhere; "
            "choose another out=DIRECTORY."
        )
    if facts.get("data_sha256") != experiment.work.data.digest:
        raise UserError(f"{record.path} was run on other data than {settings.dataset} holds now; restore the data.")
    if facts.get(SETTINGS_DIGEST) != settings.digest:
        raise UserError(f"{record.path}: its config.toml, or a file that it names, was changed; restore it.")
    now = {**machine(), **_own_code(experiment)}
    unfinished = 0 < len(record.rounds()) < settings.rounds
    if unfinished and not accept_changes and (found := doubts(latest(facts), now)):
        raise UserError(sentence(record.path, found))
    server = _restored(record, experiment.first_server())
    record.resume()
    if record.round < settings.rounds:
        _note_changes(record, facts, now)
    if settings.plain() != complete(record.config(), settings):
        record.write_config(settings.plain())
    return server


def _note_changes(record: Record, facts: Plain, now: Plain) -> None:
    """A run that goes on with other code or versions, or on another machine, says so: its bits may depend on them."""
    known = latest(facts)
    unknown = {name: now[name] for name in NEED_A_WORD if name in now and name not in known}  # an earlier version's run
    if changed := changed_facts(known, now) | unknown:
        changes = [*facts.get(WENT_ON, []), {"after_round": record.round, **changed}]
        record.write_environment(facts | {WENT_ON: changes})


def roll_back(record: Record, round: int) -> None:
    """Take a run back to an earlier round; what came after it is removed, and the record says so."""
    before = len(record.rounds())
    facts = record.environment()
    record.check_point(round)
    kept = [change for change in facts.get(WENT_ON, []) if change["after_round"] < round]
    record.write_environment(facts | {WENT_ON: [*kept, {"after_round": round, "rolled_back_from": before}]})
    record.roll_back(round)


def _restored(record: Record, first: Server) -> Server:
    """The saved server, if it is one of this model and algorithm; `first` shows what it must look like."""
    saved = record.saved_server()
    if saved is None:
        return first
    server = Server(saved.get("weights", {}), saved.get("state", {}))
    if reason := mismatch(server.weights, first.weights) or mismatch(server.state, first.state):
        raise UserError(f"{record.path} holds a checkpoint that does not fit its settings ({reason}); restore it.")
    return server


class Run:
    """A run in progress: what it starts from, where it is recorded, who scores, and the server after the last round."""

    def __init__(self, experiment: Experiment, record: Record, engine: Engine, checks: Checks, server: Server) -> None:
        self.experiment, self.record, self.engine = experiment, record, engine
        self.server = server
        protect = experiment.settings.protect
        most = protect.most_samples(checks.samples, experiment.task.classes)
        self.checks = replace(checks, samples=most, fewest=protect.fewest_samples)
        self.accountant = accountant_of(protect)
        self.sent_by: Counter[int] = Counter()  # noisy uploads by client; one that was lost may have been seen
        if self.accountant and record.begun:
            for line in record.rounds():
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
        self.change = algorithm.uploaded(self.server.weights)
        self.shared = algorithm.shared_template(self.server)
        self.state = algorithm.client_state_template(self.server)
        self.failures: dict[int, str] = {}
        self._uploads: dict[int, Upload] = {}
        self._refused: dict[int, str] = {}

    def take(self, outcome: Outcome) -> None:
        """Use an upload, or note why it is not used."""
        if outcome.upload is None:
            self.failures[outcome.client] = self._refused[outcome.client] = outcome.failure
        elif reason := self._refusal(outcome.upload, outcome.state or {}):
            self._refused[outcome.client] = reason
        else:
            self._uploads[outcome.client] = self.spool.keep(self.protect.received(outcome.upload))
            if outcome.state:
                self.record.keep_state(outcome.client, outcome.state)

    def refuse(self, client: int, reason: str) -> None:
        """Do not use an upload after all: beside the others of its round it cannot be right."""
        del self._uploads[client]
        self._refused[client] = reason

    def _refusal(self, upload: Upload, state: Tensors) -> str | None:
        if reason := self.checks.refusal(upload, self.change, self.shared, self.experiment.task.classes):
            return reason
        if objection := self.protect.objection(upload):
            return objection
        reason = mismatch(state, self.state) if self.checks.states else None
        return f"next state: {reason}" if reason else None

    @property
    def uploads(self) -> list[Upload]:
        """Those that are used, in client-id order whatever the order of arrival."""
        return [self._uploads[client] for client in sorted(self._uploads)]

    @property
    def refused(self) -> dict[int, str]:
        return dict(sorted(self._refused.items()))

    def close(self, who: Roster, missing: Mapping[int, str] | None = None, restarted: Sequence[int] = ()) -> RoundLine:
        """Aggregate, score, commit: what the record says of the round, and the run has its next server."""
        engine, algorithm = self.run.engine, self.experiment.settings.algorithm
        uploads, hidden = self.protect.concealed(self.uploads)
        server, discarded = _next_server(self.experiment, self.number, self.server, uploads)
        scores = _scores(engine, algorithm, server)
        if server is not self.server:
            before = partial(_scores, engine, algorithm, self.server)
            if discarded := self.checks.unusable(scores.loss, lambda: before().loss):
                server, scores = self.server, before()
        line = RoundLine(
            round=self.number,
            active=who.trains,
            lost=sorted(set(who.trains) - set(who.arrives)),
            refused=self.refused,
            updated=bool(self.uploads) and not discarded,
            diversity=self._diversity(),
            bytes_up=len(who.trains) * self._bytes_up(),
            bytes_down=len(who.trains) * (size(self.sent.weights) + size(self.sent.extra)),
            accuracy=scores.accuracy,
            loss=scores.loss,
            recall=scores.recall,
            seconds=round(time.perf_counter() - self.began, 3),
            missing=missing or {},
            restarted=restarted,
            discarded=discarded,
            other_accuracies=scores.others,
            hidden=hidden,
            **self._privacy(who),
        )
        self.record.commit(line, {"weights": server.weights, "state": server.state}, keep_states=line.updated)
        self.run.server = server
        self.run.sent_by.update(who.trains if self.run.accountant else ())
        return line

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

    def _bytes_up(self) -> int:
        """What the upload of one client takes."""
        counts = {"counts": torch.zeros(self.experiment.task.classes, dtype=torch.int64)}
        return size(self.change) + size(self.shared) + size(counts)


def _next_server(experiment: Experiment, number: int, server: Server, uploads: list[Upload]) -> tuple[Server, str]:
    """The aggregated and refined server; the old one without uploads, or, with the reason, if that is not finite."""
    if not uploads:
        return server, ""
    algorithm = experiment.settings.algorithm
    after = algorithm.aggregate(server, uploads, experiment.task.clients)
    after = checked_server(algorithm, "aggregate", after, server)
    after = algorithm.refine(after, partial(experiment.fit, number))
    after = checked_server(algorithm, "refine", after, server)
    problem = not_finite(after.weights) or not_finite(after.state)
    return (server, problem) if problem else (after, "")


@dataclass(frozen=True)
class Scores:
    """How good a server is on the whole test set; `others` are accuracies of other weights, by name."""

    accuracy: float
    loss: float
    recall: Sequence[float | None]
    others: Mapping[str, float]


def _scores(engine: Engine, algorithm: Algorithm, server: Server) -> Scores:
    score = engine.score(checked_weights(algorithm, "evaluated", algorithm.evaluated(server), server.weights))
    others = {}
    for name, weights in algorithm.also_evaluated(server).items():
        checked = checked_weights(algorithm, "also_evaluated", weights, server.weights)
        others[name] = engine.score(checked).accuracy
    return Scores(score.accuracy, score.mean_loss, score.recall, others)


def _environment(experiment: Experiment) -> Plain:
    """What else a number may depend on."""
    return {
        **machine(),
        **_own_code(experiment),
        "data_sha256": experiment.work.data.digest,
        SETTINGS_DIGEST: experiment.settings.digest,
        "inputs": plain(experiment.work.data.inputs),
        "warnings": list(experiment.warnings),
    }


def _own_code(experiment: Experiment) -> Plain:
    return {OWN_CODE: experiment.own_code} if experiment.own_code else {}
