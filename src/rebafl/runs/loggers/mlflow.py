"""How do rounds get into MLflow? Into the store that MLFLOW_TRACKING_URI names, or a file beside the run directory.

All numbers of a round are written in one transaction, at a time that follows from the record: written again, they are
the same row.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..events import RoundLine
from .sink import About, numbers

FILE, EXPERIMENT = "mlflow.db", "rebafl"
TAG = "rebafl_directory"  # by it the run is found again
LONGEST = 500  # letters of a parameter's value
MOST = 100  # parameters that MLflow takes at once


class Mlflow:
    """One run of MLflow."""

    def __init__(self, about: About) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        self.about = about
        self.client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or _own_store(about))
        self.run = self._found() or self._created()
        self._describe()

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
        return str(run.info.run_id)

    def _describe(self) -> None:
        """The settings that do not stand there yet: all of a new run, or what a kill left out."""
        from mlflow.entities import Param

        known = self.client.get_run(self.run).data.params
        missing = [
            Param(name, str(value)[:LONGEST]) for name, value in self.about.settings.items() if name not in known
        ]
        for first in range(0, len(missing), MOST):
            self.client.log_batch(self.run, params=missing[first : first + MOST])


def _own_store(about: About) -> str:
    """The file beside the run. MLflow cannot open one in whose making it was killed: it is made aside, then named."""
    path = about.path.resolve().parent / FILE
    if not path.exists():
        about.folder.mkdir(parents=True, exist_ok=True)
        aside = about.folder.resolve() / f"new-{FILE}"
        for left in aside.parent.glob(f"{aside.name}*"):  # with the journal, if there is one
            left.unlink()
        _make_store(aside)
        try:
            os.link(aside, path)
        except FileExistsError:  # another run beside this one was faster
            pass
        except OSError:  # a file system without hard links: two runs that begin at once may both make one
            os.replace(aside, path)
        aside.unlink(missing_ok=True)
    return f"sqlite:///{path}"


def _make_store(path: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
