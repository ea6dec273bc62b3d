"""How do rounds get into MLflow? Into the store that MLFLOW_TRACKING_URI names, or a file beside the run directory.

All numbers of a round are written in one transaction, at a time that follows from the record: written again, they are
the same row.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..events import RoundLine
from .sink import About, numbers

if TYPE_CHECKING:
    pass

FILE, EXPERIMENT = "mlflow.db", "rebafl"
TAG = "rebafl_directory"  # by it the run is found again
LONGEST = 500  # letters of a parameter's value


class Mlflow:
    """One run of MLflow."""

    def __init__(self, about: About) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        self.about = about
        place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{about.path.resolve().parent / FILE}"
        self.client = MlflowClient(tracking_uri=place)
        self.run = self._found() or self._created()

    def rounds(self, committed: int) -> int:
        """Numbers of rounds that were rolled back stay there: MLflow cannot take single ones away."""
        history = self.client.get_metric_history(self.run, "accuracy")
        return min(committed, max((metric.step for metric in history), default=0))

    def write(self, line: RoundLine, at: float) -> None:
        from mlflow.entities import Metric

        values = numbers(line, self.about.classes)
        metrics = [Metric(name, value, int(1000 * at), line.round) for name, value in values.items()]
        for first in range(0, len(metrics), 1000):  # as many as MLflow takes; accuracy, by which it counts, goes last
            self.client.log_batch(self.run, metrics=metrics[::-1][first : first + 1000])

    def close(self) -> None:
        self.client.set_terminated(self.run)

    def _experiment(self) -> str:
        known = self.client.get_experiment_by_name(EXPERIMENT)
        return str(known.experiment_id) if known else str(self.client.create_experiment(EXPERIMENT))

    def _found(self) -> str | None:
        where = str(self.about.path.resolve()).replace("'", "")
        found = self.client.search_runs([self._experiment()], f"tags.`{TAG}` = '{where}'")
        return str(found[0].info.run_id) if found else None

    def _created(self) -> str:
        where = str(self.about.path.resolve()).replace("'", "")
        run = self.client.create_run(self._experiment(), int(1000 * self.about.began), {TAG: where}, where)
        for name, value in self.about.settings.items():
            self.client.log_param(run.info.run_id, name, str(value)[:LONGEST])
        return str(run.info.run_id)
