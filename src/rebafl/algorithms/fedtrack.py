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
from .aggregate import Means, Weight, euclidean_norm, moved
from .class_gaussians import Gaussians, first_guess, linear_head, track, within_class_scatter
from .interface import Algorithm, Batch, Client, Context, Costs, Sent, Server, Task
from .prototypes import PROTOTYPES, class_prototypes
from .rebafl import ReBaFL

VELOCITY, RESULT, FILLED = "velocity/", "result/", "filled"
MEANS, SCATTER, LENGTH = "means", "scatter", "length"
GAUSSIANS = ("tracked/means", "tracked/variance", "tracked/scatter")
REBAFL = (PROTOTYPES, "mass")


@parameters
class FedTrack(Algorithm):
    """Server steps smoothed over a turn of all clients, and a head read from class Gaussians tracked through absence.

    `smooth=false readout=false` leaves ReBaFL with this `eps` and `mu`; `eps=1 mu=0` besides, FedAvg.
    """

    name = "fedtrack"
    costs = Costs(
        communication="up: one feature vector per class, and half a matrix of features by features",
        compute="one forward pass over the local data per round",
    )

    eps: Annotated[float, Field(ge=0, le=1, description="smoothing of the prior in the local loss, as in ReBaFL")] = 0.1
    mu: Annotated[float, Field(ge=0, description="weight of ReBaFL's augmented features; 0: none")] = 0.0
    smooth: Annotated[bool, Field(description="step by the mean change over about one turn of all clients")] = True
    speed: Annotated[float, Field(gt=0, le=5, description="longest smoothed step, in mean changes")] = 4.0
    readout: Annotated[bool, Field(description="the head that counts is read from the classes' statistics")] = True

    @property
    def local(self) -> ReBaFL:
        """How clients train."""
        return ReBaFL(eps=self.eps, mu=self.mu)

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        state = self.local.server_state(net, task)
        if self.smooth:
            state |= {VELOCITY + name: torch.zeros_like(w.detach()) for name, w in net.named_parameters()}
            state |= {name: torch.zeros(1, dtype=torch.float64) for name in (FILLED, LENGTH)}
        if self.readout:
            _check_linear(weights_of(net), task)
            state |= dict(zip(GAUSSIANS, first_guess(task.classes, task.features), strict=True))
            state |= {RESULT + name: tensor for name, tensor in weights_of(net).items()}
        return state

    def broadcast(self, server: Server) -> Tensors:
        return {name: server.state[name] for name in REBAFL if name in server.state}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """The statistics are of the received model: the only one that all clients of the round share."""
        context = self.local.start(net, sent, client)
        if not self.readout:
            return context
        features = client.features(net)
        means = class_prototypes(features, client.labels, len(client.counts))
        statistics = {MEANS: means, SCATTER: within_class_scatter(features, client.labels, means)}
        return replace(context, prepared={**context.prepared, **statistics})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        return self.local.loss(net, batch, context)

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        shared = self.local.share(net, context, steps)
        shared |= {name: context.prepared[name] for name in (MEANS, SCATTER) if self.readout}
        if self.smooth:
            received = context.sent.weights
            length = euclidean_norm({name: w.detach() - received[name] for name, w in net.named_parameters()})
            shared[LENGTH] = next(net.parameters()).new_tensor([length])
        return shared

    def shared_template(self, server: Server) -> Tensors:
        shared, like = self.local.shared_template(server), next(iter(_head(server.weights).values()))
        if self.readout:
            classes, features = server.state[GAUSSIANS[0]].shape
            half = features * (features + 1) // 2
            shared |= {MEANS: like.new_zeros(classes, features), SCATTER: like.new_zeros(half)}
        return shared | ({LENGTH: like.new_zeros(1)} if self.smooth else {})

    def unprotected(self) -> tuple[str, ...]:
        return (MEANS, SCATTER) if self.readout else ()

    def weight_of(self, shared: str) -> Weight | None:
        return "samples" if shared in (SCATTER, LENGTH) else "classes"

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        trained = self.local.next_server(server, means, clients)
        known = {name: trained.state[name] for name in self.broadcast(server)}
        after = Server(trained.weights, {**server.state, **known})
        if self.smooth:
            after = self.stepped(server, after, means, means.uploads / clients)
        return self.read(server, after, means) if self.readout else after

    def stepped(self, server: Server, after: Server, means: Means, share: float) -> Server:
        """One step by the window's mean, no longer than clients' own changes; `share` of all clients answered.

        Statistics of a normalisation are no parameters, and are averaged as ever.
        """
        now = {FILLED: torch.ones(1), LENGTH: means.shared[LENGTH]}
        now |= {VELOCITY + name: change for name, change in means.change.items() if VELOCITY + name in server.state}
        window = {name: (1 - share) * server.state[name] + share * value for name, value in now.items()}
        filled = float(window[FILLED])
        velocity = {name.removeprefix(VELOCITY): v / filled for name, v in window.items() if name.startswith(VELOCITY)}
        longest = float(window[LENGTH]) / filled / max(euclidean_norm(velocity), 1e-30)
        stepped = moved({name: server.weights[name] for name in velocity}, velocity, min(self.speed, longest))
        kept = {name: value.to(server.state[name].dtype) for name, value in window.items()}
        return Server(after.weights | stepped, {**after.state, **kept})

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
