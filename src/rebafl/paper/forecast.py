"""How long will it take? Predicted from a measured speed and each round's clients, corrected by finished rounds."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from ..algorithms.interface import Sent
from ..data import Data, load
from ..engines import cores, start_engine
from ..runs.events import RoundLine
from ..runs.experiment import Experiment, prepare
from ..runs.record import Record
from ..training.resources import one_thread
from .items import Cell

LONG = 0.5  # seconds that are long enough to measure a speed


class Forecast:
    """What each round of a cell will take, and how far off that was in the rounds that are done."""

    def __init__(self, rounds: Sequence[float]) -> None:
        self.rounds = rounds
        self.done = 0
        self.predicted = self.measured = 0.0  # seconds of the rounds that are done

    def correct(self, line: RoundLine) -> None:
        """By a finished round, as the record has it."""
        if line.round <= len(self.rounds):
            self.done = line.round
            self.predicted += self.rounds[self.done - 1]
            self.measured += line.seconds

    def seconds_left(self, slowdown: float = 1.0) -> float:
        """As long as no round of the cell is done, `slowdown` times what was predicted."""
        ratio = self.measured / self.predicted if self.predicted else slowdown
        return ratio * sum(self.rounds[self.done :])


def slowdown(forecasts: Collection[Forecast]) -> float:
    """How many times as long as predicted the finished rounds of all cells took."""
    predicted = sum(forecast.predicted for forecast in forecasts)
    return sum(forecast.measured for forecast in forecasts) / predicted if predicted else 1.0


def seconds_left(forecasts: Collection[Forecast]) -> float:
    """What all cells together will take."""
    ratio = slowdown(forecasts)
    return sum(forecast.seconds_left(ratio) for forecast in forecasts)


@dataclass(frozen=True)
class Speed:
    """Of one method on one data set, with all workers busy, as they are in a run."""

    sample: float  # seconds that a worker trains on one sample once
    server: float  # seconds that the server takes to refine the model and to score it on the whole test set


class Forecaster:
    """Measures once how fast this machine runs each method, and computes from it how long a cell will take."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._speeds: dict[tuple[str, ...], Speed] = {}

    def forecast(self, cell: Cell) -> Forecast:
        """Round by round: the worker with the most samples decides when training ends, then the server works."""
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

    def resumed(self, cell: Cell, record: Record) -> Forecast:
        """The same for a run that may have begun: its finished rounds say more than what is measured now."""
        forecast = self.forecast(cell)
        for line in record.rounds() if record.begun else ():
            forecast.correct(line)
        return forecast

    def _speed(self, experiment: Experiment) -> Speed:
        settings = experiment.settings
        kind = (settings.dataset, settings.model.kind, settings.algorithm.name)
        if kind not in self._speeds:
            self._speeds[kind] = _measured(experiment)
        return self._speeds[kind]


def _measured(experiment: Experiment) -> Speed:
    """One client per worker, all at once, as in a run; twice if that is short, since the first time takes longer."""
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
    """The samples of the worker that gets the most, if each takes the next client whenever it is free."""
    loads = [0] * workers
    for size in sizes:
        heapq.heapreplace(loads, loads[0] + size)
    return max(loads)
