"""Could one's own images be made again from the means one would send? Reconstruction before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data import Data
from ..models.contract import Classifier
from ..population.partition import Indices
from .curves import SERVER, Plan
from .inversion.album import Campaign
from .inversion.depths import deep
from .inversion.sitting import Sent, Sitter, Sitting, divided, new_album, seen
from .inversion.tools import DEEP
from .parts.pictures import UPLOAD, are_pictures, told
from .verdicts import Verdict

BEFORE = "before joining"
PARTS = 10
"""One client alone: intervals are over so many parts of its images."""


def own_pictures(
    net: Classifier,
    data: Data,
    public: Indices,
    held: Mapping[int, Indices],
    sent: Mapping[int, Tensor],
    plan: Plan,
    to: Path | None,
) -> tuple[dict[str, Any] | None, list[Verdict], str]:
    """The part, its verdicts, and why there is none."""
    if not plan.pictures or not are_pictures(data):
        return None, [], "reconstruction of images" + ("" if are_pictures(data) else ": the samples are none")
    divide = divided(data, public, plan.seed)
    known = {label: own for label, own in held.items() if label in divide.pictures}
    if not known:
        return None, [], "reconstruction of images: the test part, which is public, has too few of them to train on"
    sitting = Sitting(divide, new_album(data, divide, plan.seed), plan.seed)
    view = deep(net, data.inputs)
    for tool in (tool for tool in plan.tools() if tool.everywhere):
        campaign = Campaign(tool.attack.name, SERVER, DEEP, BEFORE)
        for label, own in known.items():
            real = (Sent(UPLOAD, len(own), sent[label], own),) if label in sent else ()
            sitter = Sitter(0, label, own, seen(view, data, own), view, real, PARTS)
            sitting.attack(tool, campaign, sitter, tool.sizes(plan.ks, DEEP))
    part, verdicts = told(sitting.album, data, BEFORE, to)
    return part, verdicts, ""
