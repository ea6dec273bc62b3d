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
from .interface import Client, Context, Costs, Sent, Server, Task
from .prototypes import class_prototypes
from .rebafl import ReBaFL, Share

VELOCITY, RESULT = "velocity/", "result/"
MEANS, SCATTER = "means", "scatter"
GAUSSIANS = ("tracked/means", "tracked/variance", "tracked/scatter")


@parameters
class FedTrack(ReBaFL):
    """Server steps smoothed over a turn of all clients, and a head read from class Gaussians tracked through absence.

    `smooth=false` and `readout=false` leave ReBaFL; with `eps=1` and `mu=0`, as here by default, that is FedAvg.
    """

    name = "fedtrack"
    paper = "of this project; see docs/algorithms/fedtrack.md for what it is built on"
    costs = Costs(
        communication="up: one feature vector per class, and half a matrix of features by features",
        compute="one forward pass over the local data per round",
    )

    eps: Annotated[
        Share | Annotated[tuple[Share, ...], Field(min_length=1)],
        Field(description="smoothing of the prior, as in ReBaFL; 1: plain cross entropy"),
    ] = 1.0
    mu: Annotated[float, Field(ge=0, description="weight of the augmented features' loss, as in ReBaFL; 0: none")] = 0.0
    smooth: Annotated[bool, Field(description="step by the changes' mean over a window of about one turn of all")] = (
        True
    )
    speed: Annotated[float, Field(gt=0, le=3, description="how far a smoothed step goes, in mean changes")] = 2.0
    readout: Annotated[bool, Field(description="read the head that counts from the classes' statistics")] = True

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        state = dict(super().server_state(net, task))
        if self.smooth:
            state |= {VELOCITY + name: torch.zeros_like(w) for name, w in weights_of(net).items()}
            state[VELOCITY] = torch.zeros(1, dtype=torch.float64)  # how much of the window is filled
        if self.readout:
            _check_linear(weights_of(net), task)
            state |= dict(zip(GAUSSIANS, first_guess(task.classes, task.features), strict=True))
            state |= {RESULT + name: tensor for name, tensor in weights_of(net).items()}
        return state

    def broadcast(self, server: Server) -> Tensors:
        return {name: server.state[name] for name in ("prototypes", "mass") if name in server.state}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """The statistics are of the received model: the only one that all clients of the round share."""
        context = super().start(net, sent, client)
        if not self.readout:
            return context
        features = client.features(net)
        means = class_prototypes(features, client.labels, len(client.counts))
        scatter = within_class_scatter(features, client.labels, means)
        return replace(context, prepared={**context.prepared, MEANS: means, SCATTER: scatter})

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        shared = dict(super().share(net, context, steps))
        return shared | {name: context.prepared[name] for name in (MEANS, SCATTER) if self.readout}

    def shared_template(self, server: Server) -> Tensors:
        shared = dict(super().shared_template(server))
        if self.readout:
            classes, features = server.state[GAUSSIANS[0]].shape
            like = next(tensor for name, tensor in server.weights.items() if part_of(name) == "head")
            shared[MEANS] = like.new_zeros(classes, features)
            shared[SCATTER] = like.new_zeros(features * (features + 1) // 2)
        return shared

    def weight_of(self, shared: str) -> Weight | None:
        return "samples" if shared == SCATTER else super().weight_of(shared)

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        after = super().next_server(server, means, clients)
        state = {**server.state, **after.state}
        weights = after.weights
        if self.smooth:
            share = means.uploads / clients
            filled = (1 - share) * state[VELOCITY] + share
            velocity = {
                name: (1 - share) * state[VELOCITY + name] + share * change for name, change in means.change.items()
            }
            weights = moved(server.weights, velocity, self.speed / float(filled))
            state |= {VELOCITY + name: v.to(state[VELOCITY + name].dtype) for name, v in velocity.items()}
            state[VELOCITY] = filled
        if self.readout:
            before = Gaussians(*(state[name] for name in GAUSSIANS))
            gaussians = track(before, means.shared[MEANS], means.counts, means.shared[SCATTER])
            state |= dict(zip(GAUSSIANS, gaussians, strict=True))
            result = server.weights | linear_head(gaussians, _head(server.weights))
            state |= {RESULT + name: tensor for name, tensor in result.items()}
        return Server(weights, state)

    def evaluated(self, server: Server) -> Tensors:
        """The model that was sent last with the head that fits its features, or what will be sent."""
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
