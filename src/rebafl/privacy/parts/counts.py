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
from ..measures import Numbers
from ..verdicts import LEAKS, NO_LEAK, TOO_WEAK, Verdict
from .stage import MASS, PROTOTYPES, Stage


def counted(stage: Stage) -> dict[str, Any]:
    counts = counts_of(stage.table)
    word = LEAKS
    stage.verdicts.append(
        Verdict(
            "class counts", SERVER, word,
            f"every upload names its classes exactly; {counts.unique_classes} of {counts.clients} clients are the "
            f"only ones with their set of classes ({counts.bits:.1f} of {math.log2(counts.clients):.1f} bits)",
        )
    )  # fmt: skip
    alike = _alike(stage) if stage.shares else None
    return {**asdict(counts), "alike": alike}


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
