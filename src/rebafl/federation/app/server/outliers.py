"""Is an upload out of all proportion to the others of its round?

What clients share besides weights (mean features, mean gradients) does not grow with a client's data. So what is a
hundred times as long as the median client's is no honest upload, and a server that averaged it would spoil the
training of everybody after that, which the loss shows only when it is too late. The change of the weights does grow
with the data, and a model that it spoiled shows at once: it is compared only once a round had to be discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from ....algorithms.aggregate import Upload, euclidean_norm

FEWEST = 3  # uploads of which the median means something
SHARED = 100.0  # times the median's length that shared values may have
CHANGE = 10.0  # the same for the change of the weights, once a round was discarded


def standing_out(uploads: Sequence[Upload], wary: bool) -> dict[int, str]:
    """Client -> how its upload stands out; `wary` after a round was discarded."""
    shared = {upload.client: euclidean_norm(upload.shared) for upload in uploads}
    change = {upload.client: euclidean_norm(upload.change) for upload in uploads} if wary else {}
    return _beyond(shared, SHARED, "shared values") | _beyond(change, CHANGE, "weights")


def _beyond(lengths: dict[int, float], factor: float, what: str) -> dict[int, str]:
    """The clients whose length is beyond the factor, with a reason; what is not finite is refused elsewhere."""
    finite = [each for each in lengths.values() if math.isfinite(each)]
    if len(finite) < FEWEST or (typical := median(finite)) == 0:
        return {}
    return {
        client: f"{what}: of length {each:.4g}, more than {factor:g} times the median client's {typical:.4g}"
        for client, each in lengths.items()
        if each > factor * typical
    }
