"""How does a whole run go? Round after round over an engine, each committed to the record before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .aggregate import Upload, mismatch, refusal
from .algorithm import Algorithm, Sent, Server
from .config import Plain, plain
from .data import Data
from .engines import Engine, Outcome, start_engine
from .errors import UserError, exists
from .evaluate import diversity
from .experiment import Experiment, Say, prepare
from .local import one_thread
from .machine import machine
from .models import Factory
from .participation import Roster
from .record import CONFIG, Record
from .settings import KEPT_APART, Settings, differences, make_settings
from .tensors import Tensors, size

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
) -> Record:
    """Run, or go on with, the experiment in directory `out`, up to `settings.rounds` rounds.

    `data` (see `rebafl.data.from_torch`) and `model` (a callable that makes one) take the place of what
    `settings` names.
    """
    if not isinstance(settings, Settings):
        settings = make_settings(settings)
    if data is not None:
        settings = replace(settings, dataset=data.name)
    if model is not None:
        settings = replace(settings, model=replace(settings.model, kind=OWN_MODEL))
    record = Record(Path(out))
    check_same(record, settings)
    with one_thread():
        experiment = prepare(settings, data, model, say)
    with record.locked(), one_thread():
        check_same(record, settings)
        server = _open(record, experiment)
        if record.round >= settings.rounds:
            return record
        with closing(
            start_engine(experiment.work, settings.engine, settings.workers)
        ) as engine:  # forks before any display starts
            listen("start", {"round": record.round, "warnings": experiment.warnings})
            while record.round < settings.rounds:
                server = _round(experiment, engine, record, server, listen)
    return record


def check_same(record: Record, settings: Settings) -> None:
    """A directory belongs to its settings: going on with others would mix two experiments."""
    if not record.begun:
        if reason := record.in_the_way():
            raise UserError(f"{record.path} cannot hold a new run ({reason}); choose another out=DIRECTORY.")
        if not exists(record.path / CONFIG):
            return
    stored = record.config()
    for name in KEPT_APART:
        stored.pop(name, None)
    if unlike := differences(stored, settings.identity()):
        raise UserError(
            f"{record.path} holds a run with other settings ({'; '.join(unlike[:3])}); choose another out=DIRECTORY."
        )


def _open(record: Record, experiment: Experiment) -> Server:
    """Create the directory, or pick up where it stands."""
    settings = experiment.settings
    if not record.begun:
        record.create(settings.plain(), _environment(experiment))
        return experiment.first_server()
    facts = record.environment()
    if facts.get("data_sha256") != experiment.work.data.digest:
        raise UserError(f"{record.path} was run on other data than {settings.dataset} holds now; restore the data.")
    if facts.get("settings_sha256") != settings.digest:
        raise UserError(f"{record.path}: its config.toml, or a file that it names, was changed; restore it.")
    server = _restored(record, experiment.first_server())
    record.resume()
    if settings.plain() != record.config():
        record.write_config(settings.plain())
    return server


def _restored(record: Record, first: Server) -> Server:
    """The saved server, if it is one of this model and algorithm; `first` shows what it must look like."""
    saved = record.saved_server()
    if saved is None:
        return first
    server = Server(saved.get("weights", {}), saved.get("state", {}))
    if reason := mismatch(server.weights, first.weights) or mismatch(server.state, first.state):
        raise UserError(f"{record.path} holds a checkpoint that does not fit its settings ({reason}); restore it.")
    return server


def _round(experiment: Experiment, engine: Engine, record: Record, server: Server, listen: Listener) -> Server:
    """One round: ask, train, refuse what cannot be right, aggregate, score, commit."""
    began, number = time.perf_counter(), record.round + 1
    algorithm = experiment.settings.algorithm
    who = experiment.roster(number)
    sent = Sent(server.weights, algorithm.broadcast(server))
    # A lost upload leaves no trace, not even at its client, whose state is rolled back: it need not be computed.
    states = _states(record, who, algorithm.client_state(server))
    outcomes = _collect(engine.train(number, sent, states), len(states), number, listen)
    uploads, refused = _accept(experiment, server, outcomes)
    line = _line(experiment, number, who, server, uploads, refused)
    if uploads:
        server, problem = _next_server(experiment, number, server, uploads)
        if problem:
            line |= {"updated": False, "discarded": problem}
    line |= _scores(engine, algorithm, server)
    line["seconds"] = round(time.perf_counter() - began, 3)
    accepted = {upload.client for upload in uploads} if line["updated"] else set()
    after = {outcome.client: outcome.state for outcome in outcomes if outcome.client in accepted and outcome.state}
    record.commit(line, {"weights": server.weights, "state": server.state}, after)
    listen("round", line)
    return server


def _states(record: Record, who: Roster, expected: Tensors) -> dict[int, Tensors | None]:
    """The states of the clients that train, checked: a file damaged by hand must not become a strange result."""
    states = {client: record.client_state(client) for client in who.arrives}
    for client, state in states.items():
        if state is not None and (reason := mismatch(state, expected)):
            raise UserError(f"{record.path}: the saved state of client {client} is damaged ({reason}); restore it.")
    return states


def _collect(outcomes: Iterable[Outcome], expected: int, number: int, listen: Listener) -> list[Outcome]:
    """All outcomes, in client-id order whatever the order of arrival."""
    listen("client", {"done": 0, "of": expected})
    found = []
    for outcome in outcomes:
        found.append(outcome)
        listen("client", {"done": len(found), "of": expected})
    if number == 1 and found and all(outcome.failure for outcome in found):
        raise UserError(f"Every client of the first round failed, client {found[0].client} with {found[0].failure}.")
    return sorted(found, key=lambda outcome: outcome.client)


def _accept(experiment: Experiment, server: Server, outcomes: list[Outcome]) -> tuple[list[Upload], dict[int, str]]:
    """The uploads to use, and why others are not used."""
    algorithm, most = experiment.settings.algorithm, len(experiment.work.data.y_train)
    change, shared = algorithm.uploaded(server.weights), algorithm.shared(server)
    kept = algorithm.client_state(server)
    uploads, refused = [], {}
    for outcome in outcomes:
        if outcome.upload is None:
            refused[outcome.client] = outcome.failure
        elif reason := refusal(outcome.upload, change, shared, experiment.task.classes, most):
            refused[outcome.client] = reason
        elif reason := mismatch(outcome.state or {}, kept):
            refused[outcome.client] = f"next state: {reason}"
        else:
            uploads.append(outcome.upload)
    return uploads, refused


def _next_server(
    experiment: Experiment, number: int, server: Server, uploads: list[Upload]
) -> tuple[Server, str | None]:
    """The aggregated and refined server; if it is not finite the old one, with the reason."""
    algorithm = experiment.settings.algorithm
    after = algorithm.aggregate(server, uploads, experiment.task.clients)
    after = algorithm.refine(after, partial(experiment.fit, number))
    problem = mismatch(after.weights, server.weights) or mismatch(after.state, server.state)
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
    moves = [{n: delta for n, delta in each.change.items() if n in experiment.parameters} for each in uploads]
    down = size(server.weights) + size(algorithm.broadcast(server))
    counts = {"counts": torch.zeros(experiment.task.classes, dtype=torch.int64)}
    up = size(algorithm.uploaded(server.weights)) + size(algorithm.shared(server)) + size(counts)
    return {
        "round": number,
        "active": list(who.trains),
        "lost": sorted(set(who.trains) - set(who.arrives)),
        "refused": dict(refused),
        "updated": bool(uploads),
        "diversity": diversity(moves) if uploads else None,
        "bytes_up": len(who.trains) * up,
        "bytes_down": len(who.trains) * down,
    }


def _scores(engine: Engine, algorithm: Algorithm, server: Server) -> Plain:
    score = engine.score(algorithm.evaluated(server))
    found: Plain = {"accuracy": score.accuracy, "loss": score.mean_loss, "recall": score.recall}
    for name, weights in algorithm.also_evaluated(server).items():
        found[f"{name}_accuracy"] = engine.score(weights).accuracy
    return found


def _environment(experiment: Experiment) -> Plain:
    """What else a number may depend on."""
    return {
        **machine(),
        "data_sha256": experiment.work.data.digest,
        "settings_sha256": experiment.settings.digest,
        "inputs": plain(experiment.work.data.inputs),
        "warnings": list(experiment.warnings),
    }


def trained_weights(record: Record, settings: Settings) -> Tensors:
    """The weights that the run's last accuracy belongs to."""
    saved = record.server()
    return settings.algorithm.evaluated(Server(saved.get("weights", {}), saved.get("state", {})))
