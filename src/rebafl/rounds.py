"""What do all runs share, simulated or real? How a run directory is opened, and how a round is closed.

A round is closed in the same way wherever its clients were trained: refuse what cannot be right, aggregate,
score, commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .aggregate import Upload, mismatch, refusal
from .algorithm import Algorithm, Server
from .config import Plain, plain
from .engines import Engine, Outcome
from .errors import UserError, exists
from .evaluate import diversity
from .experiment import Experiment
from .machine import changed_facts, machine
from .participation import Roster
from .record import CONFIG, Record
from .settings import KEPT_APART, Settings, differences
from .tensors import size

WENT_ON = "went_on_with"  # in environment.json: what was different when a run was gone on with
FEDERATION = "federation"  # in environment.json: the facts of a run whose clients were real


@dataclass(frozen=True)
class Checks:
    """What an upload is held against besides its shape. `states` says whether clients hand their next state in."""

    samples: int
    norm: float = math.inf
    states: bool = True


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


def open_record(record: Record, experiment: Experiment, federation: Plain | None = None) -> Server:
    """Create the directory, or pick up where it stands; `federation` are the facts of one that is new."""
    settings = experiment.settings
    if not record.begun:
        extra = {FEDERATION: federation} if federation is not None else {}
        record.create(settings.plain(), {**_environment(experiment), **extra})
        return experiment.first_server()
    facts = record.environment()
    if (FEDERATION in facts) != (federation is not None):
        there = "a federation" if FEDERATION in facts else "a simulation"
        raise UserError(
            f"{record.path} holds the run of {there}, which keeps its clients' state elsewhere; "
            "choose another out=DIRECTORY."
        )
    if facts.get("data_sha256") != experiment.work.data.digest:
        raise UserError(f"{record.path} was run on other data than {settings.dataset} holds now; restore the data.")
    if facts.get("settings_sha256") != settings.digest:
        raise UserError(f"{record.path}: its config.toml, or a file that it names, was changed; restore it.")
    server = _restored(record, experiment.first_server())
    record.resume()
    if record.round < settings.rounds:
        _note_changes(record, facts)
    if settings.plain() != record.config():
        record.write_config(settings.plain())
    return server


def _note_changes(record: Record, facts: Plain) -> None:
    """A run that goes on with other code or versions, or on another machine, says so: its bits may depend on them."""
    known = dict(facts)
    for change in facts.get(WENT_ON, []):
        known |= change
    if changed := changed_facts(known, machine()):
        changes = [*facts.get(WENT_ON, []), {"after_round": record.round, **changed}]
        record.write_environment(facts | {WENT_ON: changes})


def _restored(record: Record, first: Server) -> Server:
    """The saved server, if it is one of this model and algorithm; `first` shows what it must look like."""
    saved = record.saved_server()
    if saved is None:
        return first
    server = Server(saved.get("weights", {}), saved.get("state", {}))
    if reason := mismatch(server.weights, first.weights) or mismatch(server.state, first.state):
        raise UserError(f"{record.path} holds a checkpoint that does not fit its settings ({reason}); restore it.")
    return server


def close_round(
    experiment: Experiment,
    engine: Engine,
    record: Record,
    server: Server,
    who: Roster,
    outcomes: list[Outcome],
    began: float,
    checks: Checks,
    notes: Mapping[str, Any] | None = None,
) -> tuple[Server, Plain]:
    """Refuse, aggregate, score, commit: the next server, and what the record says of the round.

    `outcomes` are in client-id order; `began` is of `time.perf_counter`.
    """
    algorithm, number = experiment.settings.algorithm, record.round + 1
    uploads, refused = _accept(experiment, server, outcomes, checks)
    line = {**_line(experiment, number, who, server, uploads, refused), **(notes or {})}
    if uploads:
        server, problem = _next_server(experiment, number, server, uploads)
        if problem:
            line |= {"updated": False, "discarded": problem}
    line |= _scores(engine, algorithm, server)
    line["seconds"] = round(time.perf_counter() - began, 3)
    accepted = taken(line)
    after = {outcome.client: outcome.state for outcome in outcomes if outcome.client in accepted and outcome.state}
    record.commit(line, {"weights": server.weights, "state": server.state}, after)
    return server, line


def taken(line: Mapping[str, Any]) -> set[int]:
    """The clients whose uploads became part of the model in a recorded round."""
    if not line["updated"]:
        return set()
    return set(line["active"]) - set(line["lost"]) - set(map(int, line["refused"]))


def _accept(
    experiment: Experiment, server: Server, outcomes: list[Outcome], checks: Checks
) -> tuple[list[Upload], dict[int, str]]:
    """The uploads to use, and why others are not used."""
    algorithm = experiment.settings.algorithm
    change, shared = algorithm.uploaded(server.weights), algorithm.shared(server)
    kept = algorithm.client_state(server)
    uploads, refused = [], {}
    for outcome in outcomes:
        if outcome.upload is None:
            refused[outcome.client] = outcome.failure
        elif reason := refusal(outcome.upload, change, shared, experiment.task.classes, checks.samples, checks.norm):
            refused[outcome.client] = reason
        elif checks.states and (reason := mismatch(outcome.state or {}, kept)):
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
