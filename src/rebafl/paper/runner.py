"""How are hours of work done in slices? Cell by cell, each a resumable run, until all are done or time is up."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..algorithms.interface import Sent
from ..data import Data, load
from ..engines import cores, start_engine
from ..runs.events import Event, Listener, RoundLine
from ..runs.experiment import Experiment, prepare
from ..runs.simulate import simulate
from ..training.resources import one_thread
from .items import Cell
from .results import keep

LONG = 0.5  # seconds that are long enough to measure a speed
Say = Callable[[str], None]


class OutOfTime(Exception):
    """The budget is used up; what was done is saved."""


class Forecast:
    """What each round of a cell will take, and how far off that was in the rounds that are done."""

    def __init__(self, rounds: Sequence[float]) -> None:
        self.rounds = rounds
        self.done = 0
        self.predicted = self.measured = 0.0  # seconds of the rounds that are done

    def hear(self, line: RoundLine) -> None:
        """A finished round, as the record has it."""
        if line.round <= len(self.rounds):
            self.done = line.round
            self.predicted += self.rounds[self.done - 1]
            self.measured += line.seconds

    def left(self, slower: float = 1.0) -> float:
        """Seconds; as long as no round is done, `slower` times what was predicted."""
        ratio = self.measured / self.predicted if self.predicted else slower
        return ratio * sum(self.rounds[self.done :])


def slower(forecasts: Iterable[Forecast]) -> float:
    """How much more time than predicted all rounds took that are done."""
    heard = [forecast for forecast in forecasts if forecast.predicted]
    return sum(each.measured for each in heard) / sum(each.predicted for each in heard) if heard else 1.0


def all_left(forecasts: Collection[Forecast]) -> float:
    """Seconds that all cells together will take."""
    ratio = slower(forecasts)
    return sum(forecast.left(ratio) for forecast in forecasts)


@dataclass(frozen=True)
class Speed:
    """Of one method on one data set, with all workers busy, as they are in a run."""

    sample: float  # seconds that a worker trains on one sample once
    server: float  # seconds that the server takes to refine the model and to score it on the whole test set


class Pace:
    """How fast this machine runs each method, measured once for each, and what that means for a cell."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._speeds: dict[tuple[str, ...], Speed] = {}

    def forecast(self, cell: Cell) -> Forecast:
        """Round by round: the worker with the most to do decides when training ends, then it is the server's turn."""
        settings = cell.settings
        if settings.dataset not in self._data:
            self._data[settings.dataset] = load(settings.dataset)
        with one_thread():
            experiment = prepare(settings, self._data[settings.dataset])
            speed = self._speed(experiment)
        sizes = [len(experiment.work.split.indices(client)) for client in range(experiment.task.clients)]
        workers, epochs = settings.workers or cores(), settings.training.epochs
        rosters = (experiment.roster(number).arrives for number in range(1, settings.rounds + 1))
        most = (busiest((sizes[client] for client in arrives), workers) for arrives in rosters)
        return Forecast([samples * epochs * speed.sample + speed.server for samples in most])

    def _speed(self, experiment: Experiment) -> Speed:
        settings = experiment.settings
        kind = (settings.dataset, settings.model.kind, settings.algorithm.name)
        if kind not in self._speeds:
            self._speeds[kind] = _measured(experiment)
        return self._speeds[kind]


def _measured(experiment: Experiment) -> Speed:
    """One client a worker, all at once, as in a run; twice if that is short, for the first time costs more."""
    settings, algorithm = experiment.settings, experiment.settings.algorithm
    server, workers = experiment.first_server(), settings.workers or cores()
    sent = Sent(server.weights, algorithm.broadcast(server))
    clients = range(min(workers, experiment.task.clients))
    samples = max(len(experiment.work.split.indices(client)) for client in clients)
    with closing(start_engine(experiment.work, settings.engine, workers)) as engine:
        for _ in range(2):
            began = time.perf_counter()
            deque(engine.train(1, sent, clients, lambda client: None), maxlen=0)
            trained = time.perf_counter()
            algorithm.refine(server, partial(experiment.fit, 1))
            for weights in (server.weights, *algorithm.also_evaluated(server).values()):
                engine.score(weights)
            scored = time.perf_counter()
            if trained - began > LONG:
                break
    return Speed((trained - began) / (samples * settings.training.epochs), scored - trained)


def busiest(sizes: Iterable[int], workers: int) -> int:
    """What the worker with the most to do has to do, if each takes the next client whenever it is free."""
    loads = [0] * workers
    for size in sizes:
        heapq.heapreplace(loads, loads[0] + size)
    return max(loads)


def run_cell(
    cell: Cell, results: Path, work: Path, until: float, listen: Listener, say: Say, accept_changes: bool = False
) -> None:
    """Run a cell to its end and keep its result; `OutOfTime` after the round in which the clock passes `until`."""

    def hear(event: Event) -> None:
        listen(event)
        if isinstance(event, RoundLine) and time.monotonic() > until and event.round < cell.settings.rounds:
            raise OutOfTime

    record = simulate(cell.settings, work / cell.key, listen=hear, say=say, accept_changes=accept_changes)
    keep(cell, record, results)
