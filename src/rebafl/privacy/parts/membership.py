"""Does the change of the weights tell who was trained on? The scores over clients, and models overfitted on purpose."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ..measures import estimate
from ..retrained import overfitted
from ..verdicts import TOO_WEAK, Verdict, decide, three
from .look import Seen
from .stage import Stage


def inferred(stage: Stage, seen: Seen) -> list[dict[str, Any]]:
    scene = stage.scenes[-1]
    controls = overfitted(stage.work, stage.eye, scene.sent, scene.round, stage.pools, stage.plan.seed)
    rows = []
    for (attacker, way), by_client in seen.inference.items():
        columns = [[float(np.mean([told[n] for told in some])) for some in by_client.values()] for n in range(3)]
        shared = seen.non_members * len(stage.pools)
        found = estimate(columns[0], stage.plan.seed, shared)
        tpr, negative = (estimate(column, stage.plan.seed) for column in columns[1:])
        positive = estimate(controls.get(way, []), stage.plan.seed)
        word, reason = decide(found, positive, negative, 0.5, seen.non_members)
        text = f"AUC {reason}" if word != TOO_WEAK else reason
        name = f"membership by {way} (not LiRA)"
        stage.verdicts.append(Verdict(name, attacker, word, text, found, positive, negative, {"tpr": asdict(tpr)}))
        rows.append(
            {
                "attacker": attacker,
                "way": way,
                **three(found, positive, negative),
                "tpr": asdict(tpr),
                "verdict": word,
            }
        )
    return rows
