"""How does a whole run go? Round after round over an engine, each committed to the record before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..algorithms.aggregate import mismatch
from ..algorithms.hooks import checked_tensors, own_mistakes
from ..algorithms.interface import Sent, Server
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..data import Data
from ..engines import Engine, StateOf, start_engine
from ..models.choice import Factory
from ..training.resources import one_thread
from .experiment import Experiment, Say, prepare
from .record import Record
from .rounds import Checks, Intake, check_same, close_round, open_record
from .settings import Settings, make_settings, resumed_settings
from .spool import Spool

OWN_MODEL = "python"

Listener = Callable[[str, Mapping[str, Any]], None]
"""Hears `("start", …)`, `("client", …)` after each client and `("round", line)` after each round."""


def simulate(
    settings: Settings | Mapping[str, Any],
    out: str | Path,
    data: Data | None = None,
    model: Factory | None = None,
    listen: Listener = lambda event, facts: None,
    say: Say = print,
    accept_changes: bool = False,
) -> Record:
    """Run, or go on with, the experiment in directory `out`, up to `settings.rounds` rounds.

    `data` (see `rebafl.from_torch`) and `model` (a callable that makes one) take the place of what
    `settings` names. A run whose own code was edited since is gone on with only if `accept_changes` says so.
    """
    record = Record(Path(out))
    if not isinstance(settings, Settings):
        settings = resumed_settings(record.config(), settings) if record.begun else make_settings(settings)
    if data is not None:
        settings = replace(settings, dataset=data.name)
    if model is not None:
        settings = replace(settings, model=replace(settings.model, kind=OWN_MODEL))
    check_same(record, settings)
    with one_thread(), own_mistakes(settings.algorithm):
        experiment = prepare(settings, data, model, say)
    with record.locked(), one_thread(), own_mistakes(settings.algorithm):
        check_same(record, settings)
        server = open_record(record, experiment, accept_changes=accept_changes)
        if record.round >= settings.rounds:
            return record
        with closing(
            start_engine(experiment.work, settings.engine, settings.workers)
        ) as engine:  # forks before any display starts
            listen("start", {"round": record.round, "warnings": experiment.warnings})
            while record.round < settings.rounds:
                server = _round(experiment, engine, record, server, listen)
    return record


def _round(experiment: Experiment, engine: Engine, record: Record, server: Server, listen: Listener) -> Server:
    """One round: ask, train, refuse what cannot be right, aggregate, score, commit."""
    began, number = time.perf_counter(), record.round + 1
    algorithm = experiment.settings.algorithm
    who = experiment.roster(number)
    sent = Sent(server.weights, checked_tensors(algorithm, "broadcast", algorithm.broadcast(server)))
    checks = Checks(samples=len(experiment.work.data.y_train))
    with Spool(record.path) as spool:
        intake = Intake(experiment, record, server, checks, spool)
        # A lost upload leaves no trace, not even at its client, whose state is rolled back: it need not be computed.
        clients = who.arrives
        listen("client", {"done": 0, "of": len(clients)})
        for done, outcome in enumerate(engine.train(number, sent, clients, _states(record, intake.state)), 1):
            intake.take(outcome)
            listen("client", {"done": done, "of": len(clients)})
        if number == 1 and clients and len(intake.failures) == len(clients):
            client, failure = next(iter(intake.failures.items()))
            raise UserError(f"Every client of the first round failed, client {client} with {failure}.")
        server, line = close_round(intake, engine, who, began)
    listen("round", line)
    return server


def _states(record: Record, expected: Tensors) -> StateOf:
    """Reads the state of a client when it is to train, and checks it."""

    def state_of(client: int) -> Tensors | None:
        state = record.client_state(client)
        if state is not None and (reason := mismatch(state, expected)):
            raise UserError(f"{record.path}: the saved state of client {client} is damaged ({reason}); restore it.")
        return state

    return state_of


def trained_weights(record: Record, settings: Settings) -> Tensors:
    """The weights that the run's last accuracy belongs to."""
    saved = record.server()
    return settings.algorithm.evaluated(Server(saved.get("weights", {}), saved.get("state", {})))
