"""Is FedDyn's swing all that it lacks? FedDyn scored by the mean of its results over about one turn of all clients.

A control of tools/beyond.py: `algorithm=averaged_feddyn:AveragedFedDyn`.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from rebafl import parameters
from rebafl.algorithms.aggregate import Means
from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.interface import Server, Task
from rebafl.base.tensors import Tensors
from rebafl.models.contract import Classifier, weights_of

AVERAGE, FILLED = "average/", "filled"


@parameters
class AveragedFedDyn(FedDyn):
    """FedDyn, scored by a running mean with a window of m / |S| rounds; training is FedDyn's own."""

    name = "averaged-feddyn"

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        sums = {AVERAGE + name: torch.zeros_like(tensor) for name, tensor in weights_of(net).items()}
        return super().server_state(net, task) | sums | {FILLED: torch.zeros(1)}

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        after, share = super().next_server(server, means, clients), means.uploads / clients
        now = {AVERAGE + name: tensor for name, tensor in super().evaluated(after).items()} | {FILLED: torch.ones(1)}
        average = {name: server.state[name].lerp(tensor, share) for name, tensor in now.items()}
        return replace(after, state={**after.state, **average})

    def evaluated(self, server: Server) -> Tensors:
        """Divided by how much of the window is filled, so that the first model does not count."""
        sums = {name: w for name, w in server.state.items() if name.startswith(AVERAGE)}
        filled = server.state[FILLED].clamp(min=1e-12)
        return {name.removeprefix(AVERAGE): w / filled for name, w in sums.items()}
