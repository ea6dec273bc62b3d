"""What do protections promise, and what not? What they cannot cover is refused; the rest a run says when it starts."""

from __future__ import annotations

from collections.abc import Collection

from ..algorithms.interface import Algorithm
from ..algorithms.prototypes import PROTOTYPES
from ..base.rng import NoiseSource
from .protections import Protections


def uncovered(algorithm: Algorithm, protect: Protections, shared: Collection[str]) -> str:
    """Why these protections cannot cover what this algorithm shares, or ''; `shared` names it."""
    if protect.hides and (bare := algorithm.unprotected()):
        return (
            f"protect.{protect.hides} cannot cover {' and '.join(bare)}, which {algorithm.name} shares: choose another "
            "algorithm, or protect.secagg."
        )
    if protect.central_noise and (others := sorted(set(shared) - {PROTOTYPES})):
        return (
            f"protect.central_noise blurs the mean change of the weights; {algorithm.name} shares "
            f"{others[0]} and more besides, which follows from a client's change without noise: "
            "choose another algorithm, or protect.update_noise."
        )
    return ""


def claims(protect: Protections, shared: Collection[str], source: NoiseSource) -> tuple[str, ...]:
    """What the recorded ε is about and what it is not, in sentences; `shared` names what an upload shares."""
    prototypes = "prototypes and class counts" if PROTOTYPES in shared else "class counts"
    exposed = prototypes if PROTOTYPES in shared or protect.counts != "withheld" else ""
    said = []
    if protect.noise and protect.update_noise:
        said += [f"ε is about one image more or less at a client, and covers its weights, {prototypes} together."]
    elif protect.noise:
        said += [
            f"ε is about one image more or less at a client, and covers its {prototypes} given the weights "
            "that they were computed with.",
            "Weights are uploaded without noise, which voids any claim about the client as a whole, or about an "
            "image; protect.update_noise adds it.",
        ]
    elif protect.update_noise:
        said += ["ε is about all of a client's data (local differential privacy), and covers its weights."]
    if protect.central_noise:
        seen = "the sum of all changes" if protect.secagg else "each client's change"
        said += [
            "ε is about all of a client's data, replaced by any other (central differential privacy), and covers "
            f"the weights towards those who see broadcasts only: the server sees {seen} without noise."
        ]
        if protect.noise:
            said += ["The recorded ε counts both kinds of noise, and holds for what each of them covers, not for both."]
    if exposed and not protect.noise:
        said += [
            f"{exposed.capitalize()} are uploaded without noise, which voids any claim about the client as a "
            "whole; protect.noise adds it."
        ]
    if set(shared) - {PROTOTYPES}:
        said += ["What else the algorithm shares is covered only as far as it follows from the weights."]
    if source == "seed":
        said += ["The noise follows from the seed: who knows that can remove it. This run protects nobody."]
    return tuple(said)
