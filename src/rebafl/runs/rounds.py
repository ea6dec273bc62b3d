"""What do all runs share, simulated or real? How a run directory is opened, and how a round is closed.

A round is closed in the same way wherever its clients were trained: refuse what cannot be right, aggregate,
score, commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..algorithms.aggregate import Upload, mismatch, not_finite, refusal
from ..algorithms.hooks import checked_server, checked_weights
from ..algorithms.interface import Algorithm, Server
from ..base.config import Plain, plain
from ..base.errors import UserError, exists
from ..base.tensors import Tensors, size
from ..engines import Engine, Outcome
from ..population.participation import Roster
from ..training.evaluate import diversity
from .environment import changed_facts, machine
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
    `states` says whether clients hand their next state in.
    """

    samples: int
    norm: float = math.inf
    value: float = math.inf
    loss: float = math.inf
    states: bool = True

    def refusal(self, upload: Upload, change: Tensors, shared: Tensors, classes: int) -> str | None:
        return refusal(upload, change, shared, classes, self.samples, self.norm, self.value)

    def unusable(self, loss: float, before: Callable[[], float]) -> str | None:
        """Why a model with this loss must not become the run's, or None; one that was bad `before` may get better."""
        if math.isfinite(loss) and (loss <= self.loss or loss <= before()):
            return None
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


class Intake:
    """What arrives in a round: checked one upload at a time, and kept until all are there.

    Uploads go to the spool, next states to the disk: little of either stays in memory.
    """

    def __init__(self, experiment: Experiment, record: Record, server: Server, checks: Checks, spool: Spool) -> None:
        algorithm = experiment.settings.algorithm
        self.experiment, self.record, self.server, self.checks, self.spool = experiment, record, server, checks, spool
        self.change, self.shared = algorithm.uploaded(server.weights), algorithm.shared_template(server)
        self.state = algorithm.client_state_template(server)
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
            self._uploads[outcome.client] = self.spool.keep(outcome.upload)
            if outcome.state:
                self.record.keep_state(outcome.client, outcome.state)

    def refuse(self, client: int, reason: str) -> None:
        """Do not use an upload after all: beside the others of its round it cannot be right."""
        del self._uploads[client]
        self._refused[client] = reason

    def _refusal(self, upload: Upload, state: Tensors) -> str | None:
        if reason := self.checks.refusal(upload, self.change, self.shared, self.experiment.task.classes):
            return reason
        reason = mismatch(state, self.state) if self.checks.states else None
        return f"next state: {reason}" if reason else None

    @property
    def uploads(self) -> list[Upload]:
        """Those that are used, in client-id order whatever the order of arrival."""
        return [self._uploads[client] for client in sorted(self._uploads)]

    @property
    def refused(self) -> dict[int, str]:
        return dict(sorted(self._refused.items()))


def close_round(
    intake: Intake, engine: Engine, who: Roster, began: float, notes: Mapping[str, Any] | None = None
) -> tuple[Server, Plain]:
    """Aggregate, score, commit: the next server, and what the record says of the round.

    `began` is of `time.perf_counter`.
    """
    experiment, record, server = intake.experiment, intake.record, intake.server
    algorithm, number = experiment.settings.algorithm, record.round + 1
    uploads = intake.uploads
    line = {**_line(experiment, number, who, server, uploads, intake.refused), **(notes or {})}
    before = server
    if uploads:
        server, problem = _next_server(experiment, number, server, uploads)
        if problem:
            line |= {"updated": False, "discarded": problem}
    scores = _scores(engine, algorithm, server)
    if server is not before:
        old = partial(_scores, engine, algorithm, before)
        if problem := intake.checks.unusable(scores["loss"], lambda: float(old()["loss"])):
            server, scores = before, old()
            line |= {"updated": False, "discarded": problem}
    line |= scores
    line["seconds"] = round(time.perf_counter() - began, 3)
    record.commit(line, {"weights": server.weights, "state": server.state}, keep_states=line["updated"])
    return server, line


def taken(line: Mapping[str, Any]) -> set[int]:
    """The clients whose uploads became part of the model in a recorded round."""
    if not line["updated"]:
        return set()
    return set(line["active"]) - set(line["lost"]) - set(map(int, line["refused"]))


def _next_server(
    experiment: Experiment, number: int, server: Server, uploads: list[Upload]
) -> tuple[Server, str | None]:
    """The aggregated and refined server; if it is not finite the old one, with the reason."""
    algorithm = experiment.settings.algorithm
    after = algorithm.aggregate(server, uploads, experiment.task.clients)
    after = checked_server(algorithm, "aggregate", after, server)
    after = algorithm.refine(after, partial(experiment.fit, number))
    after = checked_server(algorithm, "refine", after, server)
    problem = not_finite(after.weights) or not_finite(after.state)
    return (server, problem) if problem else (after, None)


def _line(
    experiment: Experiment,
    number: int,
    who: Roster,
    server: Server,
    uploads: list[Upload],
    refused: Mapping[int, str],
) -> Plain:
    """What `rounds.jsonl` says of a round, the scores aside."""
    algorithm = experiment.settings.algorithm
    moves = [upload.change for upload in uploads]
    trained = [name for name in moves[0] if name in experiment.parameters] if moves else []
    down = size(server.weights) + size(algorithm.broadcast(server))
    counts = {"counts": torch.zeros(experiment.task.classes, dtype=torch.int64)}
    up = size(algorithm.uploaded(server.weights)) + size(algorithm.shared_template(server)) + size(counts)
    return {
        "round": number,
        "active": list(who.trains),
        "lost": sorted(set(who.trains) - set(who.arrives)),
        "refused": dict(refused),
        "updated": bool(uploads),
        "diversity": diversity(moves, trained) if uploads else None,
        "bytes_up": len(who.trains) * up,
        "bytes_down": len(who.trains) * down,
    }


def _scores(engine: Engine, algorithm: Algorithm, server: Server) -> Plain:
    score = engine.score(checked_weights(algorithm, "evaluated", algorithm.evaluated(server), server.weights))
    found: Plain = {"accuracy": score.accuracy, "loss": score.mean_loss, "recall": score.recall}
    for name, weights in algorithm.also_evaluated(server).items():
        other = checked_weights(algorithm, "also_evaluated", weights, server.weights)
        found[f"{name}_accuracy"] = engine.score(other).accuracy
    return found


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
