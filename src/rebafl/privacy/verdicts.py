"""What does an attack's result mean? It leaks, no leak was found, or the attack was too weak to tell.

An attack that fails proves something only if it would have succeeded where there is a leak: its positive control. One
that succeeds proves something only if it fails where there is none: its negative control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .measures import Estimate

Word = Literal["leaks", "no leak found", "too weak to tell"]
LEAKS: Word = "leaks"
NO_LEAK: Word = "no leak found"
TOO_WEAK: Word = "too weak to tell"
LEAST_CLIENTS, LEAST_NON_MEMBERS = 5, 1000
STRONG = 0.3
"""How far above chance a positive control must be at least, with the low end of its interval."""
NARROW = 0.05
"""How far above chance the high end of an interval may be, if nothing is to be found in it."""


@dataclass(frozen=True)
class Verdict:
    """What was decided of one attack by one attacker, why, and from which numbers."""

    attack: str
    attacker: str
    word: Word
    reason: str
    result: Estimate | None = None
    positive: Estimate | None = None
    negative: Estimate | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    result: Estimate,
    positive: Estimate,
    negative: Estimate | None,
    chance: float,
    non_members: int | None = None,
    easier: Estimate | None = None,
) -> tuple[Word, str]:
    """The word and its reason; `chance` is what guessing reaches; `non_members` where their number matters.

    `easier` is the attack's result on means of ten times fewer images: if it finds nothing there, it says nothing.
    """
    if result.units == 0:
        return TOO_WEAK, "there was nothing to attack"
    if negative is not None and negative.units and negative.low > chance:
        return TOO_WEAK, (
            f"the negative control, in which there is nothing to find, is above chance ({_words(negative)}): "
            "the attack measures something else"
        )
    few = []
    if result.units < LEAST_CLIENTS:
        few.append(f"{result.units} clients of {LEAST_CLIENTS} that are needed")
    if non_members is not None and non_members < LEAST_NON_MEMBERS:
        few.append(f"{non_members} non-members of {LEAST_NON_MEMBERS} that are needed")
    if few:
        return TOO_WEAK, f"there are only {' and '.join(few)}"
    if result.low > chance:
        return LEAKS, f"{_words(result)} where guessing gives {chance:.3f}"
    if not positive.units or positive.low < chance + STRONG * (1 - chance):
        return TOO_WEAK, f"the positive control, in which there is a leak, fails ({_words(positive)})"
    if easier is not None and easier.low <= chance:
        return TOO_WEAK, f"nothing is found either in means of ten times fewer images ({_words(easier)})"
    if result.high > chance + NARROW:
        return TOO_WEAK, f"the interval is too wide: {_words(result)}"
    return NO_LEAK, f"{_words(result)}, while the positive control succeeds ({_words(positive)})"


def three(found: Estimate, positive: Estimate, negative: Estimate) -> dict[str, Any]:
    """A result and its two controls, as plain values."""
    return {"result": asdict(found), "positive": asdict(positive), "negative": asdict(negative)}


def _words(value: Estimate) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]" if value.units else "nothing measured"
