"""Is an upload far larger than the others of its round?

What clients share besides weights (mean features, mean gradients) does not grow with a client's data. So values whose
norm is a hundred times that of the median client come from no honest upload. A server that averaged them would spoil
the training of all clients after that, which the loss shows only when it is too late. The change of the weights does
grow with the data, and a model that it spoiled shows at once: it is compared only after a round had to be discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from ....algorithms.aggregate import Upload, euclidean_norm

FEWEST = 3  # uploads of which the median means something
SHARED_FACTOR = 100.0  # times the median norm that shared values may have
CHANGE_FACTOR = 10.0  # the same for the change of the weights, after a round was discarded


def outliers(uploads: Sequence[Upload], compare_changes: bool) -> dict[int, str]:
    """Client -> why its upload is not used; the change of the weights is compared only on demand."""
    shared = {upload.client: euclidean_norm(upload.shared) for upload in uploads}
    change = {upload.client: euclidean_norm(upload.change) for upload in uploads} if compare_changes else {}
    return _too_long(shared, SHARED_FACTOR, "shared values") | _too_long(change, CHANGE_FACTOR, "weights")


def _too_long(norms: dict[int, float], factor: float, what: str) -> dict[int, str]:
    """The clients whose norm is beyond the factor, with a reason; norms that are not finite are refused elsewhere."""
    finite = [norm for norm in norms.values() if math.isfinite(norm)]
    if len(finite) < FEWEST or (typical := median(finite)) == 0:
        return {}
    return {
        client: f"{what}: of norm {norm:.4g}, more than {factor:g} times the median client's {typical:.4g}"
        for client, norm in norms.items()
        if norm > factor * typical
    }
