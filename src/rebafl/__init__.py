"""rebafl: train one good classifier across many devices that hold few classes each and keep dropping out."""

from .base import interrupts as interrupts  # first: Ctrl-C must not wait until torch is imported
from .base import portable as portable  # then: it sets what torch reads when it computes for the first time

# isort: split
from .algorithms.losses import balanced_softmax, relaxed_balanced_softmax
from .algorithms.prototypes import class_prototypes, transfer_features
from .base.config import parameters
from .base.errors import UserError
from .base.version import VERSION as __version__
from .data import Data, from_torch
from .models.contract import Classifier
from .runs.settings import Settings, make_settings
from .runs.simulate import simulate

__all__ = [
    "Classifier",
    "Data",
    "Settings",
    "UserError",
    "__version__",
    "balanced_softmax",
    "class_prototypes",
    "from_torch",
    "make_settings",
    "parameters",
    "relaxed_balanced_softmax",
    "simulate",
    "transfer_features",
]
