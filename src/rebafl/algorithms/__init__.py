"""Which algorithms are there? One file each, holding only what makes it different from FedAvg.

Others may live anywhere: as `algorithm=module:Class`, or under the entry point group `rebafl.algorithms`.
"""

from __future__ import annotations

from ..base.kinds import Kinds, no_subclass
from .alone import Alone
from .bsm_fedavg import BsmFedAvg
from .centralised import Centralised
from .fedavg import FedAvg
from .fedavg_ft import FedAvgFT
from .fedavgm import FedAvgM
from .fedbabu import FedBABU
from .feddyn import FedDyn
from .fedhbm import FedHBM
from .fedlc import FedLC
from .fednova import FedNova
from .fedntd import FedNTD
from .fedopt import FedOpt
from .fedprox import FedProx
from .fedrs import FedRS
from .fedtrack import FedTrack
from .interface import Algorithm
from .label_smoothing import LabelSmoothing
from .moon import Moon
from .rebafl import ReBaFL
from .scaffold import Scaffold

KINDS: Kinds[type[Algorithm]] = Kinds(
    "algorithm",
    {
        kind.name: kind
        for kind in (
            FedAvg,
            FedProx,
            Scaffold,
            FedDyn,
            Moon,
            FedRS,
            FedBABU,
            FedLC,
            FedAvgFT,
            LabelSmoothing,
            BsmFedAvg,
            FedAvgM,
            FedHBM,
            FedNTD,
            FedOpt,
            FedNova,
            ReBaFL,
            FedTrack,
            Alone,
            Centralised,
        )
    },
    no_subclass(Algorithm),
)
