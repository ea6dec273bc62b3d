"""Does the change of the weights tell who was trained on? The scores over clients, and models overfitted on purpose."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ...base.rng import generator
from ...training.protections import NONE
from .. import membership
from ..measures import auc, estimate
from ..verdicts import TOO_WEAK, Verdict, decide, three
from .look import Seen
from .stage import Stage, trained_on

CONTROLS = 6  # models that are overfitted on purpose


def inferred(stage: Stage, seen: Seen) -> list[dict[str, Any]]:
    controls = _overfitted(stage)
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


def _overfitted(stage: Stage) -> dict[str, list[float]]:
    """The positive control: models that saw two public images of each class 300 times."""
    found: dict[str, list[float]] = {}
    scene = stage.scenes[-1]
    training = stage.work.training
    hard = replace(training, epochs=300, batch=8, weight_decay=0.0, transform="none")
    for number in range(CONTROLS):
        random = generator(stage.plan.seed, "privacy overfitted", 0, number)
        few = {label: random.permutation(pool.reference)[:2] for label, pool in stage.pools.items()}
        stage.eye.load(scene.sent.weights)
        before = {label: (stage.both(few[label]), stage.both(stage.pools[label].held_out[:300])) for label in few}
        seen = np.concatenate(list(few.values()))
        weights = trained_on(replace(stage.work, training=hard, protect=NONE), stage.eye, scene, number, seen)
        stage.eye.load(weights)
        change = {name: weights[name] - scene.sent.weights[name] for name in weights}
        told: dict[str, list[float]] = {}
        for label, (own, public) in before.items():
            members = membership.scores(own, stage.both(few[label])[1], label, change)
            after = stage.both(stage.pools[label].held_out[:300])[1]
            others = membership.scores(public, after, label, change)
            for way, score in members.items():
                told.setdefault(way, []).append(auc(score, others[way]))
        for way, aucs in told.items():
            found.setdefault(way, []).append(float(np.mean(aucs)))
    return found
