"""What did clients upload in a round of a finished run? It is computed again, where every client's round is computed.

Uploads are not stored. A round is a pure function of the server before it and of the clients' own states. The server is
in the record for some rounds (the first, and those after a kept checkpoint); from the nearest of these, the rounds
between are computed again. Of states only the last are recorded: where clients keep any, that begins with round 1. Who
took part, and who had lost its state, is read from the record. So runs of a federation can be replayed, too, if its
nodes held the parts of the data set that the settings describe: that is found out, not taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from ..algorithms.aggregate import Upload, moved
from ..algorithms.interface import Sent, Server
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import Data, check_name
from ..engines import Engine, start_engine
from ..models.choice import Factory
from ..population.partition import Indices
from ..runs.aggregation import next_server, next_server_by_sum
from ..runs.events import RoundLine
from ..runs.experiment import Experiment, prepare
from ..runs.opening import SIMULATION, kind_of_run
from ..runs.record import open_run
from ..runs.settings import stored_settings
from ..runs.simulate import OWN_MODEL
from ..runs.summed import Summed
from ..training.resources import one_thread

Tick = Callable[[str], None]
PATIENCE = 600.0  # seconds of recorded rounds that are computed again without being asked for


@dataclass(frozen=True)
class Scene:
    """One round as it was: the server before it, every used upload, the server after it, and who was told of that."""

    round: int
    before: Server
    sent: Sent
    uploads: dict[int, Upload]
    after: Server
    recipients: tuple[int, ...]
    same_bits: bool | None
    """Do the replayed uploads give the recorded next server? None if that was not kept, or cannot be."""

    def local(self, client: int) -> Tensors:
        """A client's model after the round, as the server knows it."""
        return moved(self.sent.weights, {n: t.to(torch.float64) for n, t in self.uploads[client].change.items()})


@dataclass(frozen=True)
class _Moment:
    """Between two rounds: the server, and the states of clients that have any."""

    server: Server
    states: Mapping[int, Tensors] = field(default_factory=dict)


class Replay:
    """A finished run, whose rounds can be looked at again."""

    def __init__(self, path: Path, data: Data | None = None, model: Factory | None = None, say: Say = print) -> None:
        self.path, self.say = path, say
        self.record = open_run(path)
        self.lines: list[RoundLine] = self.record.rounds()
        if not self.lines:
            raise UserError(f"{path} has no finished round yet; go on with: rebafl run out={path}.")
        self.settings = stored_settings(self.record.config())
        facts = self.record.environment()
        if self.settings.model.kind == OWN_MODEL and model is None:
            raise UserError(f"{path} was run with a model from Python; audit it there, with audit_run(…, model=MyNet).")
        if data is None:
            check_name(self.settings.dataset)
        if facts.get("settings_sha256", self.settings.digest) != self.settings.digest:
            raise UserError(f"{path}: its settings, or a file that they name, were changed since; restore them.")
        with one_thread():
            self.experiment: Experiment = prepare(self.settings, data, model, say)
        if facts.get("data_sha256", self.experiment.work.data.digest) != self.experiment.work.data.digest:
            raise UserError(f"{path} was run on other data than {self.settings.dataset} holds now; restore the data.")
        first = self.experiment.first_server()
        self.stateful = bool(self.settings.algorithm.client_state_template(first))
        self.noise_is_lost = any(line.noise_source == "system" for line in self.lines)
        kind = kind_of_run(facts)
        options = facts.get(kind, {})
        self.most_held = int(options.get("max_samples", 0))
        if kind != SIMULATION:
            self._check_federation(options)

    def _check_federation(self, options: Mapping[str, object]) -> None:
        """Did its nodes hold what the settings say? If the last round can be computed again from that, they did."""
        if self.noise_is_lost:
            self.say("Noise of the operating system is drawn anew: uploads have its spread, not its bits.")
            if options.get("counts") == "split":
                return
        elif any(line.used for line in self.lines):
            last = max(line.round for line in self.lines if line.used)
            if self.scenes([last])[0].same_bits is not False:
                return
        raise UserError(
            f"{self.path} is the run of a federation whose clients' data are elsewhere; each client can audit its own "
            f"with: rebafl privacy audit {self.path} --data own.npz."
        )

    @property
    def last(self) -> int:
        return len(self.lines)

    def at_hand(self) -> list[int]:
        """The rounds that can be replayed without computing others before them."""
        points = [] if self.stateful else self.record.points()
        return sorted({1} | {point + 1 for point in points if point < self.last})

    def early_middle_late(self) -> list[int]:
        """Three rounds, as far apart as the record allows; of clients with states, as far as ten minutes allow."""
        reach = self._within_patience() if self.stateful else self.at_hand()
        rounds = [number for number in reach if self.lines[number - 1].used]
        if not rounds:
            raise UserError(f"No round of {self.path} used an upload, so there is nothing to audit.")
        middle = min(rounds, key=lambda number: abs(number - (rounds[0] + rounds[-1]) / 2))
        return sorted({rounds[0], middle, rounds[-1]})

    def _within_patience(self) -> list[int]:
        spent = np.cumsum([line.seconds for line in self.lines])
        return [line.round for line, seconds in zip(self.lines, spent, strict=True) if seconds <= PATIENCE] or [1]

    def check(self, rounds: Iterable[int]) -> None:
        for number in rounds:
            if not 1 <= number <= self.last:
                raise UserError(f"{self.path} has rounds 1 to {self.last}, so round {number} cannot be audited.")
            if not self.lines[number - 1].used:
                raise UserError(f"Round {number} of {self.path} used no upload; choose another.")

    def scenes(self, rounds: Sequence[int], tick: Tick = lambda text: None) -> list[Scene]:
        """These rounds, replayed."""
        self.check(rounds)
        settings = self.settings
        with one_thread(), closing(start_engine(self.experiment.work, "local", settings.workers)) as engine:
            moments = self._moments({number - 1 for number in rounds}, engine)
            return [self._scene(number, moments[number - 1], engine, tick) for number in rounds]

    def _scene(self, number: int, before: _Moment, engine: Engine, tick: Tick) -> Scene:
        sent, uploads, after = self._played(number, before, engine, tick)
        kept = self._kept(number)
        recipients = tuple(self.lines[number].active) if number < self.last else ()
        same = None if kept is None or self.noise_is_lost else _same(kept, after.server)
        # with lost noise, uploads and the broadcast must at least belong together
        told = after.server if kept is None or self.noise_is_lost else kept
        return Scene(number, before.server, sent, uploads, told, recipients, same)

    def _played(
        self, number: int, before: _Moment, engine: Engine, tick: Tick = lambda text: None
    ) -> tuple[Sent, dict[int, Upload], _Moment]:
        """One round, computed again: what was sent, the uploads that were used, and what came after it."""
        algorithm, work, line = self.settings.algorithm, self.experiment.work, self.lines[number - 1]
        sent = Sent(before.server.weights, algorithm.broadcast(before.server), line.unshared)
        states = {client: state for client, state in before.states.items() if client not in line.restarted}
        found: dict[int, Upload] = {}
        after: dict[int, Tensors] = {}
        for outcome in engine.train(number, sent, sorted(line.used), states.get):
            if outcome.upload is None:
                raise UserError(f"Client {outcome.client} failed when round {number} was replayed: {outcome.failure}.")
            found[outcome.client] = work.protect.received(outcome.upload)
            after |= {outcome.client: outcome.state} if outcome.state else {}
            tick(f"round {number} replayed for client {outcome.client}")
        uploads = {client: found[client] for client in sorted(found)}
        server = self._aggregated(number, before.server, list(uploads.values()))
        return sent, uploads, _Moment(server, {**before.states, **after})

    def _aggregated(self, number: int, server: Server, uploads: Sequence[Upload]) -> Server:
        line = self.lines[number - 1]
        if not self.settings.protect.secagg:
            return next_server(self.experiment, number, server, uploads, line.unshared)[0]
        total = Summed(self.experiment.averages(server, self.most_held), self.settings.protect)
        for upload in uploads:
            total.add(upload)
        return next_server_by_sum(self.experiment, number, server, total, len(line.active))[0]

    def _kept(self, number: int) -> Server | None:
        """The server after a round, where the record has it."""
        if number == 0:
            return self.experiment.first_server()
        if number == self.last:
            saved = self.record.server()
        elif number in self.record.points():
            saved = self.record.server_at(number)
        else:
            return None
        return Server.saved(saved)

    def _moments(self, wanted: set[int], engine: Engine) -> dict[int, _Moment]:
        """What was between rounds; those that the record has not are reached by computing the rounds before them."""
        kept = {0: _Moment(self.experiment.first_server())}
        if not self.stateful:
            points = {*self.record.points(), self.last}
            kept |= {n: _Moment(server) for n in points & wanted if (server := self._kept(n)) is not None}
        moments = {number: kept[number] for number in wanted if number in kept}
        missing = sorted(wanted - moments.keys())
        if missing:
            self.say(f"Rounds up to {missing[-1]} are computed again: what was between them was not kept.")
        at, moment = 0, kept[0]
        for goal in missing:
            nearest = max([n for n in self.record.points() if n < goal and not self.stateful], default=0)
            if nearest > at and (server := self._kept(nearest)) is not None:
                at, moment = nearest, _Moment(server)
            while at < goal:
                at += 1
                moment = self._played(at, moment, engine)[2] if self.lines[at - 1].used else moment
            moments[goal] = moment
        return moments

    def unheld(self) -> Indices:
        """The public set: positions of training samples that no client holds."""
        split = self.experiment.work.split
        free = np.ones(len(split.labels), dtype=bool)
        for client in range(split.clients):
            free[split.indices(client)] = False
        return np.flatnonzero(free)


def _same(a: Server, b: Server) -> bool:
    return all(
        x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)
        for x, y in ((a.weights, b.weights), (a.state, b.state))
    )
