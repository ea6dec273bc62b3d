"""Which algorithms are there? One file each, holding only what makes it different from FedAvg.

Others may live anywhere: as `algorithm=module:Class`, or under the entry point group `rebafl.algorithms`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from ..base.config import choices, import_name
from ..base.errors import UserError
from .bsm_fedavg import BsmFedAvg
from .fedavg import FedAvg
from .fedavg_ft import FedAvgFT
from .fedbabu import FedBABU
from .feddyn import FedDyn
from .fedlc import FedLC
from .fedprox import FedProx
from .fedrs import FedRS
from .interface import Algorithm
from .label_smoothing import LabelSmoothing
from .moon import Moon
from .rebafl import ReBaFL
from .scaffold import Scaffold

GROUP = "rebafl.algorithms"
KINDS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        FedAvg, FedProx, Scaffold, FedDyn, Moon, FedRS, FedBABU, FedLC, FedAvgFT, LabelSmoothing, BsmFedAvg, ReBaFL,
    )
}  # fmt: skip


def known(kind: object) -> dict[str, type[Algorithm]]:
    """The algorithms of this package and, where `kind` names one that lives elsewhere, that one too."""
    if not isinstance(kind, str) or kind in KINDS:
        return KINDS
    if kind in installed():
        return KINDS | {kind: _imported(installed()[kind])}
    if ":" in kind:
        return KINDS | {kind: _imported(kind)}
    raise UserError(f"algorithm: there is no {kind!r}{choices(kind, [*KINDS, *installed()])}; or give module:Class.")


def installed() -> dict[str, str]:
    """Algorithms that other installed packages offer: their name and address."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _imported(address: str) -> type[Algorithm]:
    cls = import_name(address, "algorithm")
    if not (isinstance(cls, type) and issubclass(cls, Algorithm) and isinstance(getattr(cls, "name", None), str)):
        raise UserError(f"algorithm: {address} is not a class with a name, derived from rebafl.Algorithm.")
    return cls


def kind_of(algorithm: Algorithm) -> str:
    """The word that finds this algorithm again: its name, or where it lives."""
    cls = type(algorithm)
    if KINDS.get(cls.name) is cls:
        return cls.name
    address = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, where in installed().items() if where == address), address)
