"""What keeps the risk that a user stated, and which rounds of the run broke it?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...population.partition import Indices
from ..curves import CLIENT, SERVER, Curve, least_k
from ..measures import NORMAL
from .stage import Stage


def kept_risk(stage: Stage, curves: Sequence[Curve]) -> dict[str, Any]:
    risk = stage.plan.risk
    answer = least_k(risk, [curve for curve in curves if curve.attacker == SERVER], stage.task.features)
    k = answer["k"]
    clients = least_k(risk, [curve for curve in curves if curve.attacker == CLIENT], stage.task.features)
    held = stage.table[stage.table > 0]
    typical = float(np.median(held)) if len(held) else 0.0
    by_server, by_clients = [], []
    gap = NORMAL.inv_cdf(risk.tpr) + NORMAL.inv_cdf(1 - risk.fpr)
    sent: Counter[int] = Counter()  # with noise, what counts is how often a client's images were sent behind it
    for place, line in enumerate(stage.replay.lines):
        used = sorted(line.used)
        counts = stage.shared_table[used]
        if stage.protect.noise:
            sent.update(used)
            if max(sent.values(), default=0) > (gap * stage.protect.noise) ** 2:
                by_server.append(line.round)
                by_clients.append(line.round)
            continue
        seen = counts.sum(0) if stage.summed else np.delete(counts, list(line.unshared), axis=1)
        if ((seen > 0) & (seen < k)).any():
            by_server.append(line.round)
        classes = [label for label in range(stage.task.classes) if label not in line.unshared]
        if any(_smallest(stage, counts[:, c], used, stage.told_of(place, c)) < k for c in classes):
            by_clients.append(line.round)
    times = max(sum(client in line.used for line in stage.replay.lines) for client in range(stage.task.clients))
    return {
        **answer,
        "k_for_clients": clients["k"] if clients["effective_dimensions"] else None,
        "typical_images_per_class": typical,
        "holders": None if not typical or not math.isfinite(k) else math.ceil(k / typical) + 1,
        "noise_one_round": 1 / gap,
        "noise_all_rounds": math.sqrt(max(1, times)) / gap,
        "most_participations": times,
        "rounds_broken_for_server": by_server,
        "rounds_broken_for_clients": by_clients,
    }


def _smallest(stage: Stage, counts: Indices, used: Sequence[int], told: set[int]) -> float:
    """The smallest mean of others that someone learns from the broadcast of a class; infinite: nobody does."""
    total = int(counts.sum())
    holders = int((counts > 0).sum())
    if not told or not total or holders < stage.least_holders:
        return math.inf
    left = [total - int(n) for client, n in zip(used, counts, strict=True) if client in told and total > int(n) > 0]
    single = holders == 1 and told == {used[int(np.argmax(counts))]}  # told only its own
    return min([*left, *([] if single else [total])], default=math.inf)
