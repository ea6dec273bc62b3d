"""What does a place where people look at experiments get? The numbers of committed rounds, each round exactly once.

A place says itself how many rounds it holds: that is the cursor, so that none can be forgotten or lied about, whenever
the process that wrote was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ...base.errors import UserError
from ..events import RoundLine


@dataclass(frozen=True)
class About:
    """The run whose rounds are written: where it is, its settings by dotted name, its classes, and when it began."""

    path: Path
    settings: Mapping[str, Any]
    classes: Sequence[str]
    began: float

    @property
    def folder(self) -> Path:
        """Where files of loggers are, in the run directory."""
        return self.path / "logs"


class Sink(Protocol):
    """One such place."""

    def rounds(self, committed: int) -> int:
        """How many rounds stand here; of a run that was rolled back, what is beyond the committed ones is dropped."""
        ...

    def write(self, line: RoundLine, at: float) -> None:
        """One round more, which ended at this time (seconds since 1970): it stands here whole, or not at all."""
        ...

    def close(self) -> None: ...


def need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UserError(f"log={extra} needs {package}; install it with: pip install 'rebafl[{extra}]'")


def numbers(line: RoundLine, classes: Sequence[str]) -> dict[str, float]:
    """What is written of a round, by name; what is no number is left out."""
    values: dict[str, float | None] = {
        "accuracy": line.accuracy,
        "loss": line.loss,
        "validation/accuracy": line.validation_accuracy,
        "validation/loss": line.validation_loss,
        "diversity": line.diversity,
        "epsilon": line.epsilon,
        "seconds": line.seconds,
        "bytes/up": line.bytes_up,
        "bytes/down": line.bytes_down,
        "clients/chosen": len(line.active) + len(line.unreached),
        "clients/answered": len(line.active) - len(line.lost),
        "clients/refused": len(line.refused),
        **{f"{name}_accuracy": value for name, value in line.other_accuracies.items()},
        **{f"over_clients/{name}": value for name, value in line.over_clients.items()},
        **{f"recall/{name}": value for name, value in zip(_names(classes, len(line.recall)), line.recall, strict=True)},
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def _names(classes: Sequence[str], count: int) -> list[str]:
    """Names that every place takes: letters, digits and a few signs."""
    plain = ["".join(c if c.isalnum() or c in "-_. " else "_" for c in name) for name in classes]
    return plain if len(plain) == count and len(set(plain)) == count else [str(number) for number in range(count)]
