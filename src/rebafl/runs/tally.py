"""How much of what clients did became part of the model? Counted over rounds: a last accuracy does not show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .events import RoundLine


@dataclass(frozen=True)
class Tally:
    """`uploads` arrived, and `refused` of them were not used; `missing` clients of a federation did not answer.

    Of the rounds without an update, `discarded` had a new model that could not be right.
    """

    rounds: int = 0
    uploads: int = 0
    refused: int = 0
    missing: int = 0
    rounds_without_update: int = 0
    discarded: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def words(self) -> dict[str, str]:
        """What went wrong, by the title of its column; empty if nothing did."""
        counts = {
            "refused": (self.refused, self.uploads),
            "no answer": (self.missing, self.uploads + self.missing),
            "no update": (self.rounds_without_update, self.rounds),
            "discarded": (self.discarded, self.rounds),
        }
        return {title: f"{count} of {total}" for title, (count, total) in counts.items() if count}

    @property
    def warning(self) -> str:
        """A sentence if most of what clients did is not in the model, so that its accuracy says little; else ''."""
        if 2 * self.refused > self.uploads:
            return f"Most uploads were refused ({self.refused} of {self.uploads}): the model is that of the few others."
        if 2 * self.rounds_without_update > self.rounds:
            return f"Most rounds brought no new model ({self.rounds_without_update} of {self.rounds})."
        return ""

    def __str__(self) -> str:
        """In one phrase; empty if nothing went wrong."""
        phrases = {
            "refused": "refused {} uploads",
            "no answer": "no answer to {} requests",
            "no update": "{} rounds without an update",
            "discarded": "discarded the new model of {} rounds",
        }
        return ", ".join(phrases[title].format(count) for title, count in self.words().items())


def why_unchanged(line: RoundLine) -> str:
    """Why a round brought no new model."""
    if line.discarded:
        return f"the new model was discarded: {line.discarded}"
    if refused := len(line.refused):
        return "the only upload was refused" if refused == 1 else f"all {refused} uploads were refused"
    return "no upload arrived"


def why_nothing_was_learned(lines: Sequence[RoundLine]) -> str:
    """Why a run whose uploads arrived is where it began, or '' if some round brought a new model."""
    if any(line.updated for line in lines) or not (answered := [line for line in lines if line.answered]):
        return ""
    last = answered[-1]
    refused = next((f", client {client}'s as {reason}" for client, reason in last.refused.items()), "")
    return f"round {last.round}: {why_unchanged(last)}{'' if last.discarded else refused}"


def tally(lines: Iterable[RoundLine]) -> Tally:
    """Of the rounds of a run."""
    total = Tally()
    for line in lines:
        arrived = len(line.active) - len(line.lost)
        unchanged = int(not line.updated), int(bool(line.discarded))
        total += Tally(1, arrived, len(line.refused), len(line.missing), *unchanged)
    return total
