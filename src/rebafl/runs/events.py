"""What is there to tell of a run? The record's line of each round, and what else a listener hears meanwhile.

Lines are written and read here and nowhere else; `docs/settings.md` explains their keys to people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.config import Plain
from .client_lists import packed, unpacked

RARE_LISTS = ("spent", "late", "unreached", "disconnected")
VALIDATION = ("validation_accuracy", "validation_loss")
ACCURACY = "_accuracy"  # ends the key of the accuracy of other weights, such as `cloud_accuracy`


@dataclass(frozen=True)
class RoundLine:
    """One line of `rounds.jsonl`: who took part in a round, and how good the model is after it."""

    round: int
    active: Sequence[int]
    """Clients that trained, or were asked to."""
    lost: Sequence[int]
    """Those of them whose upload did not arrive."""
    refused: Mapping[int, str]
    """Clients whose upload was not used, and why."""
    updated: bool
    """Did the round bring a new model?"""
    diversity: float | None
    bytes_up: int
    bytes_down: int
    accuracy: float
    loss: float | None
    recall: Sequence[float | None]
    seconds: float
    missing: Mapping[int, str] = field(default_factory=dict)
    """Clients that were asked and did not answer, and why."""
    restarted: Sequence[int] = ()
    """Clients whose own state was gone, so that they started without one."""
    discarded: str = ""
    """Why the new model was not taken."""
    other_accuracies: Mapping[str, float] = field(default_factory=dict)
    """Of other weights than those that count, by the name that the algorithm gives them."""
    hidden: Sequence[int] = ()
    """Classes whose prototypes too few clients share, so that the server does not pass them on."""
    unshared: Sequence[int] = ()
    """Classes whose prototypes clients were told to keep, since too few of those who took part hold them."""
    epsilon: float | None = None
    """What the uploads of one client have given away so far at most, at the δ of the settings; None without noise."""
    noise_source: str = ""
    """Where the noise comes from: `seed` or `system`."""
    spent: Sequence[int] = ()
    """Clients that were left out since one more upload would exceed their budget."""
    late: Sequence[int] = ()
    """Those of `lost` whose machine was still connected when the round was closed: late rather than gone."""
    unreached: Sequence[int] = ()
    """Clients that were chosen and not asked, since they were not connected; a simulation has none."""
    disconnected: Sequence[int] = ()
    """All clients that were not connected when the round began, chosen or not; a simulation has none."""
    masked: Mapping[str, int] = field(default_factory=dict)
    """How many clients took part in each stage of a masked round of a federation, and how many had to."""
    scored: int = 0
    """The round whose model the scores are of, where that is an earlier one; 0: this round's."""
    over_clients: Mapping[str, float] = field(default_factory=dict)
    """Accuracies of all clients on test samples like their own, as mean, worst tenth and spread; `tuned_…`: after
    local fine-tuning."""
    validation_accuracy: float | None = None
    validation_loss: float | None = None
    """Of the model on the part of the training data that was held out; None if there is none."""

    @property
    def chosen(self) -> list[int]:
        """The clients that were to take part."""
        return sorted({*self.active, *self.unreached})

    @property
    def answered(self) -> set[int]:
        """The clients whose upload arrived, used or not."""
        return set(self.active) - set(self.lost)

    @property
    def used(self) -> set[int]:
        """The clients whose uploads became part of the model."""
        return set(self.active) - set(self.lost) - set(self.refused) if self.updated else set()

    def plain(self) -> Plain:
        """The line as JSON has it, with every client list in full; what is empty and rare is left out."""
        return {
            "round": self.round,
            "active": list(self.active),
            "lost": list(self.lost),
            "refused": _by_text(self.refused),
            "updated": self.updated,
            "diversity": self.diversity,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            **({"missing": _by_text(self.missing)} if self.missing else {}),
            **({"restarted": list(self.restarted)} if self.restarted else {}),
            **({"discarded": self.discarded} if self.discarded else {}),
            **({"hidden": list(self.hidden)} if self.hidden else {}),
            **({"unshared": list(self.unshared)} if self.unshared else {}),
            **({"epsilon": self.epsilon, "noise_source": self.noise_source} if self.noise_source else {}),
            **{name: list(getattr(self, name)) for name in RARE_LISTS if getattr(self, name)},
            **({"masked": dict(self.masked)} if self.masked else {}),
            **({"scored": self.scored} if self.scored else {}),
            **({"over_clients": dict(self.over_clients)} if self.over_clients else {}),
            "accuracy": self.accuracy,
            "loss": self.loss,
            "recall": list(self.recall),
            **{name: getattr(self, name) for name in VALIDATION if getattr(self, name) is not None},
            **{name + ACCURACY: value for name, value in self.other_accuracies.items()},
            "seconds": self.seconds,
        }

    def packed(self) -> Plain:
        """The line as it is written: long client lists are shortened."""
        return packed(self.plain())

    @staticmethod
    def read(written: Mapping[str, Any]) -> RoundLine:
        """A line that was written. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
        values = unpacked(written)
        known = {name: values[name] for name in RoundLine.__dataclass_fields__ if name in values}
        optional = (values.get("validation_accuracy"), *values["recall"])
        scores = [values["accuracy"], *(score for score in optional if score is not None)]
        if not all(type(score) in (int, float) and 0 <= score <= 100 for score in scores):
            raise ValueError("an accuracy or a recall is no percentage")
        losses = [loss for loss in (values["loss"], values.get("validation_loss")) if loss is not None]
        numbers = [*losses, values["seconds"], *values.get("over_clients", {}).values()]
        if not all(type(number) in (int, float) for number in numbers):
            raise ValueError("a loss, a time or an accuracy over clients is no number")
        for name in ("refused", "missing"):
            known[name] = {int(client): str(reason) for client, reason in known.get(name, {}).items()}
        others = {
            name.removesuffix(ACCURACY): value
            for name, value in values.items()
            if name.endswith(ACCURACY) and name not in VALIDATION
        }
        return RoundLine(**known, other_accuracies=others)


def _by_text(reasons: Mapping[int, str]) -> dict[str, str]:
    return {str(client): reason for client, reason in reasons.items()}


@dataclass(frozen=True)
class RunStarted:
    """Everything is prepared; `round` rounds were finished before."""

    round: int
    warnings: Sequence[str]


@dataclass(frozen=True)
class ClientsTrained:
    """So many of a round's clients are done."""

    done: int
    of: int


Event = RunStarted | ClientsTrained | RoundLine
Listener = Callable[[Event], None]
"""Hears `RunStarted` once, `ClientsTrained` after each client, and the line of each round once it is committed."""


def nobody(event: Event) -> None:
    """Does not listen."""
