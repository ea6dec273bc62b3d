from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..models.contract import Classifier, part_of, weights_of
from .aggregate import Means, Weight, moved
from .class_gaussians import Gaussians, first_guess, linear_head, track, within_class_scatter
from .interface import Algorithm, Client, Context, Costs, Sent, Server, Task
from .prototypes import class_prototypes

VELOCITY, RESULT = "velocity/", "result/"
MEANS, SCATTER = "means", "scatter"
GAUSSIANS = ("tracked/means", "tracked/variance", "tracked/scatter")


@parameters
class FedTrack(Algorithm):
    """Server steps smoothed over a turn of all clients, and a head read from class Gaussians tracked through absence.

    `smooth=false` and `readout=false` leave FedAvg.
    """

    name = "fedtrack"
    costs = Costs(
        communication="up: one feature vector per class, and half a matrix of features by features",
        compute="one forward pass over the local data per round",
    )

    smooth: Annotated[bool, Field(description="step by the mean change over about one turn of all clients")] = True
    speed: Annotated[float, Field(gt=0, le=3, description="length of a smoothed step, in mean changes")] = 2.0
    readout: Annotated[bool, Field(description="the head that counts is read from the classes' statistics")] = True

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        state: Tensors = {}
        if self.smooth:
            state |= {VELOCITY + name: torch.zeros_like(w) for name, w in weights_of(net).items()}
            state[VELOCITY] = torch.zeros(1, dtype=torch.float64)  # how much of the window is filled
        if self.readout:
            _check_linear(weights_of(net), task)
            state |= dict(zip(GAUSSIANS, first_guess(task.classes, task.features), strict=True))
            state |= {RESULT + name: tensor for name, tensor in weights_of(net).items()}
        return state

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """The statistics are of the received model: the only one that all clients of the round share."""
        if not self.readout:
            return Context(sent, client)
        features = client.features(net)
        means = class_prototypes(features, client.labels, len(client.counts))
        return Context(sent, client, {MEANS: means, SCATTER: within_class_scatter(features, client.labels, means)})

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        return context.prepared

    def shared_template(self, server: Server) -> Tensors:
        if not self.readout:
            return {}
        classes, features = server.state[GAUSSIANS[0]].shape
        like = next(iter(_head(server.weights).values()))
        return {MEANS: like.new_zeros(classes, features), SCATTER: like.new_zeros(features * (features + 1) // 2)}

    def weight_of(self, shared: str) -> Weight | None:
        return "classes" if shared == MEANS else "samples"

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        after = (
            self.stepped(server, means, means.uploads / clients)
            if self.smooth
            else super().next_server(server, means, clients)
        )
        return self.read(server, after, means) if self.readout else after

    def stepped(self, server: Server, means: Means, share: float) -> Server:
        """One step by the window's mean; `share` of all clients answered."""
        state = server.state
        filled = (1 - share) * state[VELOCITY] + share
        velocity = {name: (1 - share) * state[VELOCITY + name] + share * d for name, d in means.change.items()}
        kept = {VELOCITY + name: v.to(state[VELOCITY + name].dtype) for name, v in velocity.items()}
        weights = moved(server.weights, velocity, self.speed / float(filled))
        return Server(weights, {**state, **kept, VELOCITY: filled})

    def read(self, server: Server, after: Server, means: Means) -> Server:
        """The result is the model that was sent, since the statistics are of its features, with the head they give."""
        before = Gaussians(*(server.state[name] for name in GAUSSIANS))
        gaussians = track(before, means.shared[MEANS], means.counts, means.shared[SCATTER])
        result = server.weights | linear_head(gaussians, _head(server.weights))
        results = {RESULT + name: tensor for name, tensor in result.items()}
        return replace(after, state={**after.state, **dict(zip(GAUSSIANS, gaussians, strict=True)), **results})

    def evaluated(self, server: Server) -> Tensors:
        if not self.readout:
            return server.weights
        return {name.removeprefix(RESULT): w for name, w in server.state.items() if name.startswith(RESULT)}


def _head(weights: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor for name, tensor in weights.items() if part_of(name) == "head"}


def _check_linear(weights: Tensors, task: Task) -> None:
    shapes = sorted(tuple(tensor.shape) for tensor in _head(weights).values())
    matrix = (task.classes, task.features)
    if shapes not in ([matrix], [(task.classes,), matrix]):
        raise UserError(
            "FedTrack reads a head that is one linear layer; this model's is another: use algorithm.readout=false."
        )
