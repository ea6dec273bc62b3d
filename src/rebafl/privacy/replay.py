"""What did clients upload in a round of a finished run? It is computed again, where every client's round is computed.

Uploads are not stored. A round is a pure function of the server before it, and that is in the record for some rounds
(the first, and those after a kept checkpoint). For others the settings are run again, which gives the same bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ..algorithms.aggregate import Upload, moved
from ..algorithms.interface import Sent, Server
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import Data, check_name
from ..engines.inprocess import InProcess
from ..models.choice import Factory
from ..population.partition import Indices
from ..runs.events import Event, RoundLine
from ..runs.experiment import Experiment, prepare
from ..runs.opening import SIMULATION, kind_of_run
from ..runs.record import Record, open_run
from ..runs.settings import stored_settings
from ..runs.simulate import OWN_MODEL, simulate
from ..training.resources import one_thread

Tick = Callable[[str], None]


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
    """Do the replayed uploads give the recorded next server? None if that was not kept."""

    def local(self, client: int) -> Tensors:
        """A client's model after the round, as the server knows it."""
        return moved(self.sent.weights, {n: t.to(torch.float64) for n, t in self.uploads[client].change.items()})


class Replay:
    """A finished run, whose rounds can be looked at again."""

    def __init__(self, path: Path, data: Data | None = None, model: Factory | None = None, say: Say = print) -> None:
        self.path, self.data, self.model, self.say = path, data, model, say
        self.record = open_run(path)
        self.lines: list[RoundLine] = self.record.rounds()
        if not self.lines:
            raise UserError(f"{path} has no finished round yet; go on with: rebafl run out={path}.")
        self.settings = stored_settings(self.record.config())
        facts = self.record.environment()
        if kind_of_run(facts) != SIMULATION:
            raise UserError(
                f"{path} is the run of a federation, whose clients' data are elsewhere; each client can audit its own "
                f"with: rebafl privacy audit {path} --data own.npz."
            )
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

    @property
    def last(self) -> int:
        return len(self.lines)

    def at_hand(self) -> list[int]:
        """The rounds that can be replayed without running the settings again."""
        return sorted({1} | {point + 1 for point in self.record.points() if point < self.last})

    def early_middle_late(self) -> list[int]:
        """Three of those rounds, as far apart as the record allows."""
        rounds = [number for number in self.at_hand() if self.lines[number - 1].used]
        if not rounds:
            raise UserError(f"No round of {self.path} used an upload, so there is nothing to audit.")
        middle = min(rounds, key=lambda number: abs(number - (rounds[0] + rounds[-1]) / 2))
        return sorted({rounds[0], middle, rounds[-1]})

    def check(self, rounds: Iterable[int]) -> None:
        template = self.experiment.settings.algorithm.client_state_template(self.experiment.first_server())
        for number in rounds:
            if not 1 <= number <= self.last:
                raise UserError(f"{self.path} has rounds 1 to {self.last}, so round {number} cannot be audited.")
            if not self.lines[number - 1].used:
                raise UserError(f"Round {number} of {self.path} used no upload; choose another.")
            if template and number > 1:
                raise UserError(
                    f"Clients of {self.settings.algorithm.name} keep a state of which only the last is recorded; "
                    "only round 1 of such a run can be audited: --rounds 1."
                )

    def scenes(self, rounds: Sequence[int], tick: Tick = lambda text: None) -> list[Scene]:
        """These rounds, replayed."""
        self.check(rounds)
        servers = self._servers({number - 1 for number in rounds})
        engine = InProcess(self.experiment.work)
        return [self._scene(number, servers[number - 1], engine, tick) for number in rounds]

    def _scene(self, number: int, before: Server, engine: InProcess, tick: Tick) -> Scene:
        algorithm = self.settings.algorithm
        sent = Sent(before.weights, algorithm.broadcast(before))
        uploads: dict[int, Upload] = {}
        with one_thread():
            for client in sorted(self.lines[number - 1].used):
                for outcome in engine.train(number, sent, [client], lambda _: None):
                    if outcome.upload is None:
                        raise UserError(f"Client {client} failed when round {number} was replayed: {outcome.failure}.")
                    uploads[client] = outcome.upload
                tick(f"round {number} replayed for client {client}")
            after = algorithm.aggregate(before, list(uploads.values()), self.experiment.task.clients)
            after = algorithm.refine(after, partial(self.experiment.fit, number))
        kept = self._kept(number)
        recipients = tuple(self.lines[number].active) if number < self.last else ()
        same = None if kept is None else _same(kept, after)
        return Scene(number, before, sent, uploads, kept or after, recipients, same)

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

    def _servers(self, wanted: set[int]) -> dict[int, Server]:
        servers = {number: server for number in wanted if (server := self._kept(number)) is not None}
        missing = wanted - servers.keys()
        if missing:
            self.say(f"Rounds up to {max(missing)} are run again: their checkpoints were not kept.")
            with tempfile.TemporaryDirectory(prefix="privacy-") as folder:
                again = Record(Path(folder) / "run")

                def listen(event: Event) -> None:
                    if isinstance(event, RoundLine) and event.round in missing:
                        saved = again.server()
                        servers[event.round] = Server.saved(saved)

                settings = replace(self.settings, rounds=max(missing), engine="local")
                simulate(settings, again.path, self.data, self.model, listen, self.say)
        return servers

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
