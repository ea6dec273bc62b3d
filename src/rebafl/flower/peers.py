"""Is an upload out of all proportion to the others of its round?

What clients share besides weights (mean features, mean gradients) does not grow with a client's data. So what is a
hundred times as long as the median client's is no honest upload, and a server that averaged it would spoil the
training of everybody after that, which the loss shows only when it is too late. The change of the weights does grow
with the data, and a model that it spoiled shows at once: it is compared only once a round had to be discarded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from ..aggregate import length
from ..engines import Outcome

FEWEST = 3  # uploads of which the median means something
SHARED = 100.0  # times the median's length that shared values may have
CHANGE = 10.0  # the same for the change of the weights, once a round was discarded


def compared(outcomes: list[Outcome], wary: bool) -> list[Outcome]:
    """The same outcomes, those that stand out turned into failures; `wary` after a round was discarded."""
    shared = {each.client: length(each.upload.shared) for each in outcomes if each.upload}
    change = {each.client: length(each.upload.change) for each in outcomes if each.upload and wary}
    reasons = _standing_out(shared, SHARED, "shared values") | _standing_out(change, CHANGE, "weights")
    return [
        replace(each, upload=None, failure=reasons[each.client]) if each.client in reasons else each
        for each in outcomes
    ]


def _standing_out(lengths: dict[int, float], factor: float, what: str) -> dict[int, str]:
    """The clients whose length is beyond the factor, with a reason; what is not finite is refused elsewhere."""
    finite = [each for each in lengths.values() if math.isfinite(each)]
    if len(finite) < FEWEST or (typical := median(finite)) == 0:
        return {}
    return {
        client: f"{what}: of length {each:.4g}, more than {factor:g} times the median client's {typical:.4g}"
        for client, each in lengths.items()
        if each > factor * typical
    }
