"""What do class counts say of a client, and do distances between prototypes say which classes are alike?"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ...base.rng import generator
from ..curves import CLIENT, SERVER
from ..exposure import counts_of
from ..measures import Estimate, Numbers, auc, estimate
from ..verdicts import LEAKS, NO_LEAK, TOO_WEAK, Verdict, decide
from .stage import MASS, PROTOTYPES, Stage


def counted(stage: Stage) -> dict[str, Any]:
    counts = counts_of(stage.shared_table)
    alike = _alike(stage) if stage.shares else None
    if stage.summed:  # nobody's counts are seen
        return {**asdict(counts), "held": None, "alike": alike}
    found, mixed = held_classes(stage)
    word, reason = decide(found, estimate([1.0] * found.units, stage.plan.seed), mixed, 0.5)
    unique = (
        f"; {counts.unique_classes} of {counts.clients} clients are the only ones with their set of classes "
        f"({counts.bits:.1f} of {math.log2(counts.clients):.1f} bits)"
    )
    text = f"held classes are told from others with AUC {reason}{unique}" if word == LEAKS else reason
    stage.verdicts.append(Verdict("class counts", SERVER, word, text, found, None, mixed))
    return {**asdict(counts), "held": asdict(found), "alike": alike}


def held_classes(stage: Stage) -> tuple[Estimate, Estimate]:
    """How well uploads say which classes a client holds, over clients; and the same for classes drawn anew."""
    shown: dict[int, list[Numbers]] = {}
    for scene in stage.linked:
        for client, upload in scene.uploads.items():
            shown.setdefault(client, []).append(np.asarray(upload.counts, dtype=np.float64))
    told, mixed = [], []
    for client, some in shown.items():
        held = stage.table[client] > 0
        if held.all():
            continue  # there is nothing to tell apart
        mean = np.mean(some, axis=0)
        told.append(auc(mean[held], mean[~held]))
        random = generator(stage.plan.seed, "privacy classes drawn anew", 0, client)
        others = [random.permutation(held) for _ in range(20)]
        mixed.append(float(np.mean([auc(mean[other], mean[~other]) for other in others])))
    return estimate(told, stage.plan.seed), estimate(mixed, stage.plan.seed)


def _alike(stage: Stage) -> dict[str, Any] | None:
    """Do distances between broadcast prototypes say which classes look alike? Held against public pixels."""
    scene = stage.scenes[-1]
    known = [c for c in stage.pools if float(scene.after.state[MASS][c]) > 0]
    if len(known) < 4:
        return None
    data = stage.work.data
    table = scene.after.state[PROTOTYPES][known].double()
    pixels = torch.stack(
        [data.x_train[torch.from_numpy(stage.pools[c].held_out)].double().flatten(1).mean(0) for c in known]
    )
    stage.eye.load(scene.after.weights)
    deep = torch.stack([stage.eye.features(stage.pools[c].reference[:500]).double().mean(0) for c in known])
    pairs = np.triu_indices(len(known), 1)
    own, seen, control = (torch.cdist(t, t).numpy()[pairs] for t in (table, pixels, deep))
    found, positive = _rank_correlation(own, seen), _rank_correlation(own, control)
    random = generator(stage.plan.seed, "privacy alike")
    chance = []
    for _ in range(500):
        order = random.permutation(len(known))
        mixed = torch.cdist(pixels[order], pixels[order]).numpy()[pairs]
        chance.append(_rank_correlation(own, mixed))
    p = float((1 + np.sum(np.array(chance) >= found)) / (1 + len(chance)))
    word = LEAKS if p < 0.05 else NO_LEAK if positive > 0.5 else TOO_WEAK
    text = (
        f"rank correlation {found:.2f} between distances of prototypes and of class means of public pixels "
        f"(p = {p:.3f}); control, distances of public features: {positive:.2f}"
    )
    stage.verdicts.append(Verdict("which classes are alike", CLIENT, word, text))
    return {"correlation": found, "p": p, "control": positive, "classes": len(known), "verdict": word}


def _rank_correlation(a: Numbers, b: Numbers) -> float:
    ranks = [np.argsort(np.argsort(x)).astype(np.float64) for x in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
