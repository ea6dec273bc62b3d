"""What does the server make of a round's uploads, or of their sum? Its next state, and what it does not pass on.

Protections that act on the server act here, so that a round that is computed again later has them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..algorithms.aggregate import Upload, not_finite
from ..algorithms.hooks import checked_server
from ..algorithms.interface import Server
from ..algorithms.robust import NoDefence, combined
from ..secagg.abort import Abort
from ..training.central_noise import means_with_central_noise, with_central_noise
from .experiment import SERVER, Experiment
from .summed import Summed

NextServer = tuple[Server, list[int], str]
"""The next server, the classes whose prototypes it does not pass on, and why it is the old one if it is."""


def next_server(
    experiment: Experiment, number: int, server: Server, received: Sequence[Upload], unshared: Sequence[int] = ()
) -> NextServer:
    """The aggregated and refined server, and the classes that it does not pass on.

    The old server without uploads, or, with the reason, if the new one is not finite.
    """
    if not received:
        return server, [], ""
    algorithm, work = experiment.settings.algorithm, experiment.work
    uploads, hidden = work.protect.concealed(received, unshared)
    uploads = with_central_noise(work.protect, uploads, len(received), work.noise_of(SERVER, number))
    if isinstance(defence := experiment.settings.robust, NoDefence):
        hook, after = "aggregate", algorithm.aggregate(server, uploads, experiment.task.clients)
    else:
        means = combined(defence, uploads, algorithm)
        hook, after = "next_server", algorithm.next_server(server, means, experiment.task.clients)
    return _refined(experiment, number, server, checked_server(algorithm, hook, after, server), hidden)


def next_server_by_sum(experiment: Experiment, number: int, server: Server, summed: Summed, asked: int) -> NextServer:
    """The same where only the sum of the uploads is known; `asked` clients were to take part."""
    if not summed.clients:
        return server, [], ""
    algorithm, work = experiment.settings.algorithm, experiment.work
    try:
        means, hidden = summed.means(asked)
    except Abort as reason:
        return server, [], str(reason)
    like = experiment.expected_upload(server).change
    means = means_with_central_noise(work.protect, means, like, work.noise_of(SERVER, number))
    after = algorithm.next_server(server, means, experiment.task.clients)
    return _refined(experiment, number, server, checked_server(algorithm, "next_server", after, server), hidden)


def _refined(experiment: Experiment, number: int, before: Server, server: Server, hidden: list[int]) -> NextServer:
    algorithm = experiment.settings.algorithm
    after = algorithm.refine(server, partial(experiment.fit, number))
    after = checked_server(algorithm, "refine", after, before)
    problem = not_finite(after.weights) or not_finite(after.state)
    return (before, hidden, problem) if problem else (after, hidden, "")
