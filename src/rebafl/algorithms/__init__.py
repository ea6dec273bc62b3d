"""Which algorithms are there? One file each, holding only what makes it different from FedAvg."""

from __future__ import annotations

from ..algorithm import Algorithm
from .bsm_fedavg import BsmFedAvg
from .fedavg import FedAvg
from .rebafl import ReBaFL

KINDS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (FedAvg, BsmFedAvg, ReBaFL)}
