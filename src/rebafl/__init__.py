"""rebafl: train one good classifier across many devices that hold few classes each and keep dropping out."""

from . import interrupts as interrupts  # first: Ctrl-C must not wait until torch is imported
from . import portable as portable  # then: it sets what torch reads when it computes for the first time
from .config import parameters
from .data import Data, from_torch
from .errors import UserError
from .losses import balanced_softmax, relaxed_balanced_softmax
from .models import Classifier
from .prototypes import class_prototypes, transfer_features
from .settings import Settings, make_settings
from .simulate import simulate
from .version import VERSION as __version__

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
