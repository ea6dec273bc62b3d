"""What came out of a run, for Python? Curves as arrays or a pandas frame, and the trained model.

A `Run` is a run directory, whether it was just trained or is opened by `load`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..base.errors import UserError
from ..models.choice import Factory
from ..models.contract import Classifier
from .export import Model, model_of_run
from .record import Record, open_run

Curve = npt.NDArray[np.float64]
NUMBERS = (
    "accuracy",
    "loss",
    "validation_accuracy",
    "validation_loss",
    "seconds",
    "bytes_up",
    "bytes_down",
    "diversity",
    "epsilon",
)
COUNTED = ("active", "lost", "refused", "missing")


class TrainedNet(nn.Module):
    """A trained model that is called with inputs as the data set has them, channels first; gives logits.

    Images are (n, channels, height, width), values as in the training data: 0 to 255 where they were bytes. The
    normalisation is inside. `classes` are the names of the columns.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.net: Classifier = model.net
        self.inputs = model.inputs
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        return self.inputs.classes

    def forward(self, x: Tensor | npt.NDArray[Any]) -> Tensor:
        raw = torch.as_tensor(x)
        if raw.shape[1:] != self.inputs.shape:
            wanted = ", ".join(map(str, self.inputs.shape))
            raise UserError(f"The model takes inputs of shape (n, {wanted}), not {tuple(raw.shape)}.")
        logits: Tensor = self.net(self.inputs(raw.permute(0, 2, 3, 1) if raw.dim() == 4 else raw))
        return logits


class Run(Record):
    """A run directory and what is in it: `rounds()`, `curves`, `frame()`, `model()`, `config()`, `environment()`."""

    def __init__(self, path: str | Path, model: Factory | None = None, trusted: bool = False) -> None:
        super().__init__(Path(path))
        self._own_model, self._trusted = model, trusted

    def __repr__(self) -> str:
        lines = self.rounds() if self.begun else []
        last = f", accuracy {lines[-1].accuracy:.2f}" if lines else ""
        return f"<Run {str(self.path)!r}: {len(lines)} rounds{last}>"

    @property
    def accuracy(self) -> Curve:
        """Of the global model on the whole test set after each round, in percent."""
        return self.curves["accuracy"]

    @property
    def curves(self) -> dict[str, Curve]:
        """One array a name, one number a round: scores, sizes, seconds, and how many clients took part.

        Where a round does not have a number it is NaN. Other accuracies that the algorithm has are there as
        `NAME_accuracy`.
        """
        lines = self.rounds()
        found = {name: _curve([getattr(line, name) for line in lines]) for name in NUMBERS}
        found |= {name: _curve([len(getattr(line, name)) for line in lines]) for name in COUNTED}
        others = dict.fromkeys(name for line in lines for name in line.other_accuracies)
        found |= {f"{name}_accuracy": _curve([line.other_accuracies.get(name) for line in lines]) for name in others}
        return {"round": _curve([line.round for line in lines]), **found}

    @property
    def recall(self) -> Curve:
        """The recall of each class after each round, in percent: rounds by classes."""
        return np.stack([_curve(line.recall) for line in self.rounds()])

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of `recall`."""
        return tuple(self.environment()["inputs"]["classes"])

    def frame(self) -> Any:
        """The curves as a pandas frame by round, the recall of a class as `recall CLASS`."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise UserError("run.frame() needs pandas; install it with: pip install pandas.") from None
        recall = {f"recall {name}": column for name, column in zip(self.classes, self.recall.T, strict=True)}
        return pandas.DataFrame({**self.curves, **recall}).astype({"round": int}).set_index("round")

    def model(self, model: Factory | None = None, trust_code: bool = False, best: bool = False) -> TrainedNet:
        """The trained model, called with (n, channels, height, width); gives logits.

        `best` asks for that of the round which is best on the validation part, if the run holds one out.
        `model` makes an own one that was given from Python; the run that `simulate` returns knows it. `trust_code`
        is the user's word that own code, `module:Class`, which the run's settings name, may be imported.
        """
        trusted = trust_code or self._trusted
        return TrainedNet(model_of_run(self.path, model or self._own_model, trust_code=trusted, best=best))


def load(folder: str | Path) -> Run:
    """A run directory, to look at: its curves, settings and model. Nothing in it is changed."""
    run = Run(open_run(Path(folder)).path)
    run.round = len(run.rounds()) if run.begun else 0
    return run


def _curve(values: Any) -> Curve:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
