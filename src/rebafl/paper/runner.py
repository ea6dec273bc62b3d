"""How are hours of work done in slices? Cell by cell, each a resumable run, until all are done or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ..algorithm import Sent
from ..data import Data, load
from ..engines import cores
from ..experiment import Experiment, prepare
from ..local import one_thread
from ..simulate import Listener, simulate
from .items import Cell
from .results import keep

SAMPLED = 5  # rounds whose rosters stand for all when time is estimated
Say = Callable[[str], None]


class OutOfTime(Exception):
    """The budget is used up; what was done is saved."""


class Pace:
    """How fast this machine trains each model, measured once a model, and what that means for a cell."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._rates: dict[tuple[str, str], float] = {}

    def seconds(self, cell: Cell, done: int) -> float:
        """What the rest of a cell will take, its rounds shared by all cores."""
        settings = cell.settings
        if settings.dataset not in self._data:
            self._data[settings.dataset] = load(settings.dataset)
        data = self._data[settings.dataset]
        with one_thread():
            experiment = prepare(settings, data)
            rate = self._rate(experiment)
        sizes = [
            sum(len(experiment.work.split.indices(client)) for client in experiment.roster(round).arrives)
            for round in range(1, SAMPLED + 1)
        ]
        # a forward pass is about a third of a training step; what algorithms do besides is within the error
        samples = fmean(sizes) * settings.training.epochs + len(data.y_test) / 3
        return (settings.rounds - done) * samples / rate / cores()

    def _rate(self, experiment: Experiment) -> float:
        """Samples a second that one core trains: a client's second round, once all is warm."""
        settings = experiment.settings
        kind = (settings.dataset, settings.model.kind)
        if kind not in self._rates:
            net, server = experiment.work.make_net(), experiment.first_server()
            sent = Sent(server.weights, settings.algorithm.broadcast(server))
            client = experiment.roster(1).arrives[0]
            for _ in range(2):
                began = time.perf_counter()
                experiment.work.train(net, sent, client, 1, None)
                spent = time.perf_counter() - began
            self._rates[kind] = len(experiment.work.split.indices(client)) * settings.training.epochs / spent
        return self._rates[kind]


def run_cell(
    cell: Cell, results: Path, work: Path, until: float, listen: Listener, say: Say, accept_changes: bool = False
) -> None:
    """Run a cell to its end and keep its result; `OutOfTime` after the round in which the clock passes `until`."""

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        listen(event, facts)
        if event == "round" and time.monotonic() > until and facts["round"] < cell.settings.rounds:
            raise OutOfTime

    record = simulate(cell.settings, work / cell.key, listen=hear, say=say, accept_changes=accept_changes)
    keep(cell, record, results)
