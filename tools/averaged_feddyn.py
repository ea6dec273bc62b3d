"""Is FedDyn's swing all that it lacks? FedDyn scored by the mean of its results over about one turn of all clients.

A control of tools/beyond.py: `algorithm=averaged_feddyn:AveragedFedDyn`.
"""

from __future__ import annotations

from dataclasses import replace

from rebafl import parameters
from rebafl.algorithms.aggregate import Means
from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.interface import Server, Task
from rebafl.base.tensors import Tensors
from rebafl.models.contract import Classifier, weights_of

AVERAGE = "average/"


@parameters
class AveragedFedDyn(FedDyn):
    """FedDyn, scored by a running mean with a window of m / |S| rounds; training is FedDyn's own."""

    name = "averaged-feddyn"

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        first = {AVERAGE + name: tensor for name, tensor in weights_of(net).items()}
        return super().server_state(net, task) | first

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        after, share = super().next_server(server, means, clients), means.uploads / clients
        average = {
            AVERAGE + name: server.state[AVERAGE + name].lerp(now, share)
            for name, now in super().evaluated(after).items()
        }
        return replace(after, state={**after.state, **average})

    def evaluated(self, server: Server) -> Tensors:
        return {name.removeprefix(AVERAGE): w for name, w in server.state.items() if name.startswith(AVERAGE)}
