"""What does the server make of a round's uploads, or of their sum? Its next state, and what it does not pass on.

Protections that act on the server act here, so that a round that is computed again later has them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..algorithms.aggregate import Upload, not_finite
from ..algorithms.hooks import checked_server
from ..algorithms.interface import Server
from ..secagg.abort import Abort
from ..training.central_noise import central_noise, shifted
from .experiment import SERVER, Experiment
from .summed import Summed

NextServer = tuple[Server, list[int], str]
"""The next server, the classes whose prototypes it does not pass on, and why it is the old one if it is."""


@dataclass(frozen=True)
class Aggregation:
    """Of one round; `unshared` are the classes whose prototypes clients were told to keep."""

    experiment: Experiment
    number: int
    server: Server
    unshared: Sequence[int] = ()

    def of(self, received: Sequence[Upload]) -> NextServer:
        """From uploads in client-id order."""
        if not received:
            return self.server, [], ""
        work, algorithm = self.experiment.work, self.experiment.settings.algorithm
        uploads, hidden = work.protect.concealed(received, self.unshared)
        if work.protect.central_noise:
            noise = central_noise(work.protect, uploads[0].change, len(uploads), work.noise_of(SERVER, self.number))
            uploads = [replace(upload, change=shifted(upload.change, noise)) for upload in uploads]
        after = algorithm.aggregate(self.server, uploads, self.experiment.task.clients)
        return self._finished("aggregate", after, hidden)

    def of_sum(self, total: Summed, asked: int) -> NextServer:
        """From the sum over those that stayed, of so many clients that were asked."""
        if not total.clients:
            return self.server, [], ""
        work, algorithm = self.experiment.work, self.experiment.settings.algorithm
        try:
            means, hidden = total.means(asked, self.unshared)
        except Abort as reason:
            return self.server, [], str(reason)
        if work.protect.central_noise:
            noise = central_noise(work.protect, means.change, means.uploads, work.noise_of(SERVER, self.number))
            means = replace(means, change=dict(shifted(means.change, noise)))
        after = algorithm.next_server(self.server, means, self.experiment.task.clients)
        return self._finished("next_server", after, hidden)

    def _finished(self, hook: str, after: Server, hidden: list[int]) -> NextServer:
        """Checked and refined; the old server, with the reason, if the new one is not finite."""
        algorithm = self.experiment.settings.algorithm
        after = checked_server(algorithm, hook, after, self.server)
        after = algorithm.refine(after, partial(self.experiment.fit, self.number))
        after = checked_server(algorithm, "refine", after, self.server)
        problem = not_finite(after.weights) or not_finite(after.state)
        return (self.server, hidden, problem) if problem else (after, hidden, "")
