"""rebafl: train one good classifier across many devices that hold few classes each and keep dropping out.

What is named in `__all__` is for everyone; all else may change from version to version.
"""

from .base import interrupts as interrupts  # first: Ctrl-C must not wait until torch is imported
from .base import portable as portable  # then: it sets what torch reads when it computes for the first time
from .base import quick as quick  # next: `rebafl --version` need not wait either

# isort: split
from .algorithms.aggregate import Upload, moved, weighted_mean
from .algorithms.interface import Algorithm, Batch, Client, Context, Costs, Sent, Server, Task, Training, gradients
from .algorithms.losses import balanced_softmax, relaxed_balanced_softmax
from .algorithms.prototypes import class_prototypes, transfer_features
from .algorithms.robust import Defence
from .base.config import parameters
from .base.errors import UserError
from .base.version import VERSION as __version__
from .data import Data, from_arrays, from_torch
from .models.contract import Classifier
from .population.participation import Participation
from .population.partition import Partition, Split
from .runs.events import ClientsTrained, RoundLine, RunStarted
from .runs.export import export_model, load_model, model_of_run, predict
from .runs.finished import Run, load
from .runs.python import simulate
from .runs.settings import Settings, make_settings
from .training.attacks import Attack

__all__ = [
    "Algorithm",
    "Attack",
    "Batch",
    "Classifier",
    "Client",
    "ClientsTrained",
    "Context",
    "Costs",
    "Data",
    "Defence",
    "Participation",
    "Partition",
    "RoundLine",
    "Run",
    "RunStarted",
    "Sent",
    "Server",
    "Settings",
    "Split",
    "Task",
    "Training",
    "Upload",
    "UserError",
    "__version__",
    "balanced_softmax",
    "class_prototypes",
    "export_model",
    "from_arrays",
    "from_torch",
    "gradients",
    "load",
    "load_model",
    "make_settings",
    "model_of_run",
    "moved",
    "parameters",
    "predict",
    "relaxed_balanced_softmax",
    "simulate",
    "transfer_features",
    "weighted_mean",
]
