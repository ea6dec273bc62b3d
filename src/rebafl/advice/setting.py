"""What kind of setting is this, and how far are two apart? Who holds what, who is there, and how many clients.

Distances are counted in steps; one step is a factor of two, or one part that is of another kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, log2
from statistics import fmean

import numpy as np

from ..data import KNOWN, Data, is_here
from ..paper.items import find_scale
from ..population.given import Listed
from ..population.participation import Always, Bernoulli, Fraction, Markov, Participation, Persistent, present_by
from ..population.partition import Clustered, Dirichlet, Even, Iid, Partition, Pathological
from ..runs.experiment import split_data
from ..runs.settings import Settings, flatten, make_settings

STANDS_FOR = {small: full for full, small in find_scale("quick").datasets.items()}
TELLING = ("model", "training", "protect", "robust", "attack")
"""Settings that also matter; `training.batch` belongs to the scale."""
NEVER_NEAR = 3.0  # steps to what was measured under another protection, defence or attack: more than is near
SHIPPED = "rebafl:"  # how the name of a trace begins that comes with the package
LOOKED_AT = 200  # rounds of a trace, or of own code, in which clients are counted
ROUNDING = 0.001  # steps that are no difference
LEAST_AWAY = 0.05  # a smaller share of clients that are away is counted as this


@dataclass(frozen=True)
class Setting:
    """What a method meets, apart from the scale; `total` classes are there in all. None where it cannot be told."""

    dataset: str
    skew: str
    holds: str
    classes: float | None
    clients: int
    share: float | None
    held: float | None
    total: int | None
    lost: bool = False
    other: dict[str, str] = field(default_factory=dict)

    @property
    def there(self) -> str:
        """How many clients take part, for people."""
        digits = 0 if (self.share or 1) >= 0.01 else 2  # few are not none
        share = "an unknown share" if self.share is None else f"{self.share:.{digits}%}"
        return f"{share} {'of uploads arriving' if self.lost else 'there'}"

    @property
    def drawn(self) -> str:
        """How long the same ones are there, for people."""
        if self.held == 1:
            return "drawn anew each round"
        return f"the same for {'an unknown number of' if self.held is None else f'about {self.held:.3g}'} rounds"

    def __str__(self) -> str:
        clients = f"{self.clients} clients" if self.clients else "as many clients as the data have"
        others = (f"{name}={value}" for name, value in self.other.items())
        return ", ".join([self.dataset, self.holds, clients, self.there, self.drawn, *others])


def setting_of(settings: Settings, observe: bool = False, data: Data | None = None) -> Setting:
    """Of a run; `observe`: data that are here, traces and own code may be looked at, if nothing else tells."""
    known = data or KNOWN.get(settings.dataset)
    clients, total = settings.partition.clients, len(known.classes) if known else None
    holds, classes = _holds(settings.partition, total or 10)
    if classes is None and observe and is_here(settings.dataset):
        classes, clients = dealt(settings)
        holds = f"classes dealt as unevenly as {classes:.1f} a client"
    presence, delivery = _presence(settings.participation), _presence(settings.delivery)
    with_package = getattr(settings.participation, "path", "").startswith(SHIPPED)
    if presence is None and clients and (observe or with_package):
        presence = observed(settings, clients)
    share = presence[0] * delivery[0] if presence and delivery else None
    return Setting(
        STANDS_FOR.get(settings.dataset, settings.dataset),
        settings.plain()["partition"]["kind"],
        holds,
        classes,
        clients,
        share,
        presence[1] if presence else None,
        total,
        not isinstance(settings.delivery, Always),
        _other(settings),
    )


def images_of(settings: Settings, data: Data | None = None) -> int | None:
    """How many images a client has, on average; None where only data tell that are not here."""
    partition, known = settings.partition, KNOWN.get(settings.dataset)
    if samples := getattr(partition, "samples", None):
        return int(samples)
    total = len(data.y_train) if data else known.training if known else 0
    return round(total / partition.clients) if total and partition.clients else None


def _holds(partition: Partition, of: int) -> tuple[str, float | None]:
    """In words; and how many classes a client holds, for Dirichlet so many as would be as uneven, on average."""
    match partition:
        case Pathological(classes=held):
            return f"{held} classes a client", float(held)
        case Even(classes=held):
            return f"{held} classes a client, all images dealt out evenly", float(held)
        case Clustered(classes=groups):
            return f"groups of clients with {', '.join(map(str, groups))} classes", fmean(groups)
        case Listed(classes=lists):
            return "classes as listed", fmean(map(len, lists))
        case Dirichlet(alpha=alpha):
            return f"Dirichlet {alpha:g}", (1 + of * alpha) / (1 + alpha)
        case Iid():
            return "all classes at each client (iid)", float(of)
    return "classes as a file, the data or own code says", None


def dealt(settings: Settings) -> tuple[float, int]:
    """So many classes of equal size a client would be as uneven, on average; and how many clients: from the data."""
    _, split, _ = split_data(settings, say=lambda text: None)
    counts = split.table()
    shares = counts / counts.sum(axis=1, keepdims=True)
    return round(1 / float(np.mean(np.sum(shares**2, axis=1))), 2), split.clients


def _presence(part: Participation) -> tuple[float, float] | None:
    """The share of clients there, and for how many rounds it is the same ones: 1 / (1 - correlation of two rounds)."""
    match part:
        case Always():
            return 1.0, 1.0
        case Bernoulli(p=p):
            return float(np.mean(p)), 1.0
        case Persistent(p=p, period=period):
            return float(np.mean(p)), float(period)
        case Fraction(share=share):
            return share, 1.0
        case Markov(leave=leave, join=join):
            return join / (join + leave), max(1.0, 1 / (join + leave))
    return None


def observed(settings: Settings, clients: int) -> tuple[float, float]:
    """The same, of a trace or own code, from who is there in the first rounds."""
    rounds = range(1, min(settings.rounds, LOOKED_AT) + 1)
    seed = settings.seed_of("dropout")
    there = np.stack([present_by(settings.participation, clients, seed, n, "participation") for n in rounds])
    share, changed = float(there.mean()), float(np.mean(there[1:] != there[:-1])) if len(there) > 1 else 0.0
    held = max(1.0, 2 * share * (1 - share) / changed) if changed else float(len(there))
    return float(f"{share:.2g}"), round(held, 1)


def _other(settings: Settings) -> dict[str, str]:
    """What else was set, and not left as it is by default for the data set."""
    usual, own = flatten(make_settings({"dataset": settings.dataset}).plain()), flatten(settings.plain())
    return {
        name: str(value)
        for name, value in own.items()
        if name.split(".")[0] in TELLING and name != "training.batch" and value != usual.get(name)
    }


def apart(mine: Setting, measured: Setting) -> Iterator[tuple[float, str]]:
    """In what two settings differ: steps, and both in words."""
    away = [None if share is None else max(LEAST_AWAY, 1 - share) for share in (mine.share, measured.share)]
    share = max(_steps(mine.share, measured.share), _steps(*away))
    skew = _steps(mine.classes, measured.classes) + (mine.skew != measured.skew)
    total = _steps(mine.total, measured.total) if mine.total and measured.total else 0.0
    parts = [
        (float(mine.dataset != measured.dataset), measured.dataset, mine.dataset),
        (total, f"{measured.total} classes in all", f"{mine.total}"),
        (skew, measured.holds, mine.holds),
        (_steps(mine.clients, measured.clients), f"{measured.clients} clients", f"{mine.clients or 'unknown'}"),
        (share, measured.there, mine.there),
        (_steps(mine.held, measured.held), measured.drawn, mine.drawn),
    ]
    for part in TELLING:
        each = [_of(part, setting) for setting in (measured, mine)]
        ours, own = (", ".join(found) or f"{part} as usual" for found in each)
        changed = {word.partition("=")[0] for word in {*each[0]} ^ {*each[1]}}
        step = float(len(changed)) if part == "training" else 1.0 if part == "model" else NEVER_NEAR
        parts.append((step * bool(changed), ours, own))
    yield from ((steps, f"{ours}, yours {own}") for steps, ours, own in parts if steps > ROUNDING)


def _of(part: str, setting: Setting) -> list[str]:
    return [f"{name}={value}" for name, value in setting.other.items() if name.startswith(f"{part}.")]


def _steps(a: float | None, b: float | None) -> float:
    return inf if not a or not b else abs(log2(a / b))
