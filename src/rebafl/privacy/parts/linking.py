"""Are shuffled uploads of one client found again in other rounds?"""

from __future__ import annotations

from typing import Any

from .. import linking
from ..curves import SERVER
from ..verdicts import TOO_WEAK, Verdict, decide, three
from .stage import Stage


def linked(stage: Stage) -> list[dict[str, Any]]:
    if stage.summed:
        return []  # there are no uploads of single clients to look at
    rounds = [scene.uploads for scene in stage.linked]
    rows = []
    for way, similar in stage.plan.similarities.items():
        found, chance = linking.link(rounds, similar)
        positive = linking.positive_control(rounds, similar, stage.plan.seed)
        negative, _ = linking.negative_control(rounds, similar, stage.plan.seed)
        word, reason = decide(found, positive, negative, chance)
        text = f"found again: {reason}" if word != TOO_WEAK else reason
        stage.verdicts.append(
            Verdict(f"linking shuffled uploads, {way}", SERVER, word, text, found, positive, negative)
        )
        rows.append({"way": way, "chance": chance, **three(found, positive, negative), "verdict": word})
    return rows
