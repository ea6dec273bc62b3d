"""How does a whole run go? Round after round over an engine, each committed to the record before the next."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from . import data as datasets
from .aggregate import Upload, diversity, mismatch, refusal
from .algorithm import Sent, Server, Task, Training
from .config import Plain
from .engines import Engine, Outcome, Work, start_engine
from .errors import UserError, exists
from .evaluate import Score
from .local import fit, one_thread
from .models import Classifier, Factory, Part, load_weights, make_net, weights_of
from .participation import Roster, roster
from .record import CONFIG, Record
from .rng import generator
from .settings import KEPT_APART, Settings, differences, make_settings
from .tensors import Tensors, size
from .version import VERSION

OWN_MODEL = "python"

Listener = Callable[[str, Mapping[str, Any]], None]
"""Hears `("start", …)`, `("client", …)` after each client and `("round", line)` after each round."""


@dataclass(frozen=True)
class Experiment:
    """Settings brought to life: the data, who holds what, and the initial model."""

    settings: Settings
    work: Work
    task: Task
    warnings: tuple[str, ...]
    parameters: frozenset[str]
    server_index: npt.NDArray[np.int64] | None = None

    def roster(self, round: int) -> Roster:
        s = self.settings
        return roster(s.participation, s.dropout, s.delivery, self.task.clients, s.seed, round)

    def fit(self, round: int, weights: Tensors, part: Part, training: Training) -> Tensors:
        """Train one part of the model on the server's own samples, with the loop that clients use."""
        assert self.server_index is not None
        net = self.work.make_net()
        load_weights(net, weights)
        random = generator(self.settings.seed, "server", round)
        device = self.work.device_of(-1, self.server_index, training, random)
        fit(net, device, lambda each: each == part, lambda batch: F.cross_entropy(net(batch.x), batch.y))
        return weights_of(net)

    def first_server(self) -> Server:
        net = self.work.make_net()
        return Server(weights_of(net), self.settings.algorithm.server_state(net, self.task))


def prepare(
    settings: Settings,
    data: datasets.Data | None = None,
    model: Factory | None = None,
    say: Callable[[str], None] = print,
) -> Experiment:
    """Load the data, split it and build the model; every impossible request is refused here."""
    data = data or datasets.load(settings.dataset, say)
    classes = len(data.classes)
    labels = data.y_train.numpy()
    split = settings.partition.split(labels, classes, settings.seed)
    make = partial(make_net, settings.model, data.shape, classes, settings.seed, model)
    net = make()
    features = _feature_size(net, data)
    work = Work(settings.algorithm, settings.training, data, split, settings.seed, make)
    if settings.training.transform == "crop-flip" and len(data.shape) != 3:
        raise UserError("training.transform = 'crop-flip' needs images; use training.transform=none.")
    task = Task(classes, features, split.clients)
    roster(settings.participation, settings.dropout, settings.delivery, split.clients, settings.seed, round=1)
    parameters = frozenset(name for name, _ in net.named_parameters())
    own = settings.algorithm.server_samples()
    index = _unheld(work, own) if own else None
    return Experiment(settings, work, task, _warnings(data, split.clients, work), parameters, index)


def _feature_size(net: Classifier, data: datasets.Data) -> int:
    with torch.no_grad():
        return int(net.features(data.inputs(data.x_train[:1])).shape[1])


def _warnings(data: datasets.Data, clients: int, work: Work) -> tuple[str, ...]:
    held = np.zeros(len(data.classes), dtype=bool)
    for client in range(clients):
        held |= work.split.counts(client) > 0
        if held.all():
            return ()
    names = ", ".join(name for name, there in zip(data.classes, held, strict=True) if not there)
    return (f"No client holds any sample of: {names}. This limits the accuracy that can be reached.",)


def _unheld(work: Work, each: int) -> npt.NDArray[np.int64]:
    """Positions of `each` training samples of every class that no client holds."""
    free = np.ones(len(work.data.y_train), dtype=bool)
    for client in range(work.split.clients):
        free[work.split.indices(client)] = False
    random = generator(work.seed, "server data")
    chosen = []
    for label, name in enumerate(work.data.classes):
        pool = np.flatnonzero(free & (work.split.labels == label))
        if len(pool) < each:
            raise UserError(f"The server needs {each} samples of {name} that no client holds; there are {len(pool)}.")
        chosen.append(random.choice(pool, size=each, replace=False))
    return np.sort(np.concatenate(chosen))


def simulate(
    settings: Settings | Mapping[str, Any],
    out: str | Path,
    data: datasets.Data | None = None,
    model: Factory | None = None,
    listen: Listener = lambda event, facts: None,
    say: Callable[[str], None] = print,
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
        listen("start", {"round": record.round, "warnings": experiment.warnings})
        if record.round < settings.rounds:
            engine = start_engine(experiment.work, settings.workers)
            with closing(engine):
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
    states = {client: record.client_state(client) for client in who.arrives}
    outcomes = _collect(engine.train(number, sent, states), len(states), listen)
    uploads, refused = _accept(experiment, server, outcomes)
    if uploads:
        server = algorithm.aggregate(server, uploads, experiment.task.clients)
        server = algorithm.refine(server, partial(experiment.fit, number))
    score = engine.score(algorithm.evaluated(server))
    accepted = {upload.client for upload in uploads}
    line = _line(experiment, number, who, sent, uploads, refused, score)
    for name, weights in algorithm.also_evaluated(server).items():
        line[f"{name}_accuracy"] = engine.score(weights).accuracy
    line["seconds"] = round(time.perf_counter() - began, 3)
    record.commit(
        line,
        {"weights": server.weights, "state": server.state},
        {o.client: o.state for o in outcomes if o.client in accepted and o.state},
    )
    listen("round", line)
    return server


def _collect(outcomes: Iterable[Outcome], expected: int, listen: Listener) -> list[Outcome]:
    """All outcomes, in client-id order whatever the order of arrival."""
    listen("client", {"done": 0, "of": expected})
    found = []
    for outcome in outcomes:
        found.append(outcome)
        listen("client", {"done": len(found), "of": expected})
    if found and all(outcome.failure for outcome in found):
        raise UserError(f"Every client of this round failed, the first with {found[0].failure}.")
    return sorted(found, key=lambda outcome: outcome.client)


def _accept(experiment: Experiment, server: Server, outcomes: list[Outcome]) -> tuple[list[Upload], dict[int, str]]:
    """The uploads to use, and why others are not used."""
    algorithm, data = experiment.settings.algorithm, experiment.work.data
    change, shared = algorithm.uploaded(server.weights), algorithm.shared(server)
    uploads, refused = [], {}
    for outcome in outcomes:
        upload = outcome.upload
        reason = outcome.failure if upload is None else refusal(
            upload, change, shared, experiment.task.classes, len(data.y_train)
        )  # fmt: skip
        if upload is None or reason:
            refused[outcome.client] = reason or "no upload"
        else:
            uploads.append(upload)
    return uploads, refused


def _line(
    experiment: Experiment,
    number: int,
    who: Roster,
    sent: Sent,
    uploads: list[Upload],
    refused: Mapping[int, str],
    score: Score,
) -> Plain:
    """What `rounds.jsonl` says of a round."""
    moves = [
        {name: upload.change[name] for name in upload.change if name in experiment.parameters} for upload in uploads
    ]
    return {
        "round": number,
        "accuracy": score.accuracy,
        "loss": score.mean_loss,
        "recall": score.recall,
        "active": list(who.trains),
        "lost": sorted(set(who.trains) - set(who.arrives)),
        "refused": dict(refused),
        "updated": bool(uploads),
        "diversity": diversity(moves) if uploads else None,
        "bytes_up": sum(upload.bytes for upload in uploads),
        "bytes_down": len(who.trains) * (size(sent.weights) + size(sent.extra)),
    }


def _environment(experiment: Experiment) -> Plain:
    """What else a number may depend on."""
    return {
        "rebafl": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "data_sha256": experiment.work.data.digest,
        "settings_sha256": experiment.settings.digest,
        "inputs": experiment.work.data.description,
        "warnings": list(experiment.warnings),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def trained_weights(record: Record, settings: Settings) -> Tensors:
    """The weights that the run's last accuracy belongs to."""
    saved = record.server()
    return settings.algorithm.evaluated(Server(saved.get("weights", {}), saved.get("state", {})))
