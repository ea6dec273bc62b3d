from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier
from .aggregate import Means
from .interface import Algorithm, Batch, Client, Context, Costs, Sent, Server, Task
from .losses import adjusted_cross_entropy, log_prior, weighted_cross_entropy
from .prototypes import class_prototypes, cycled_targets, transfer_features, within_class_std

Share = Annotated[float, Field(ge=0, le=1)]


@parameters
class ReBaFL(Algorithm):
    """Relaxed balanced softmax, and features of other classes made from prototypes for the head.

    `eps=1` switches the first part off, `mu=0` the second.
    """

    name = "rebafl"
    paper = "Xu et al., Stabilizing and Improving Federated Learning with Non-IID Data and Client Dropout"

    costs = Costs(
        communication="one feature vector per class, both ways",
        compute="two forward passes over the local data per round; the head twice per step",
    )
    shared_weight = "classes"

    eps: Annotated[
        Share | Annotated[tuple[Share, ...], Field(min_length=1)],
        Field(description="smoothing of the prior; several: client i has eps[i mod groups]"),
    ] = 0.01
    mu: Annotated[float, Field(ge=0, description="weight of the augmented features' loss")] = 0.1
    lam: Annotated[float, Field(ge=0, description="scale of the transferred variation (λ)")] = 1.0
    targets: Annotated[
        Literal["all", "missing"],
        Field(description="augment all classes with a prototype, or only missing ones"),
    ] = "all"
    noise: Annotated[
        Literal["transfer", "gaussian"],
        Field(description="variation around a prototype: local features', or drawn"),
    ] = "transfer"
    memory: Annotated[bool, Field(description="keep the last prototype of a class that nobody uploaded")] = False

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        if self.mu == 0:
            return {}
        return {
            "prototypes": next(net.parameters()).new_zeros(task.classes, task.features),
            "mass": torch.zeros(task.classes, dtype=torch.float64),
        }

    def broadcast(self, server: Server) -> Tensors:
        return server.state

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        own = {"prior": log_prior(client.counts, self.eps_of(client.id))}
        if self.mu > 0:
            features, held = client.features(net), client.counts > 0
            local = class_prototypes(features, client.labels, len(client.counts))
            own["prototypes"] = torch.where(held.unsqueeze(1), local, sent.extra["prototypes"])
            known = held | (sent.extra["mass"] > 0)
            available = torch.nonzero(known & ~held if self.targets == "missing" else known).flatten()
            if len(available):
                own |= self.for_targets(cycled_targets(available, client.training.batch), own, client)
            if self.noise == "gaussian":
                own["spread"] = within_class_std(features, client.labels, local)
        return Context(sent, client, own)

    def for_targets(self, targets: Tensor, own: Tensors, client: Client) -> Tensors:
        """What every batch with these targets needs: a row per sample, the real ones first, then the augmented."""
        prior = log_prior(targets.bincount(minlength=len(client.counts)), self.eps_of(client.id))
        rows, weight = (len(targets), -1), own["prototypes"].new_ones(len(targets)) / len(targets)
        return {
            "targets": targets,
            "priors": torch.cat([own["prior"].expand(rows), prior.expand(rows)]).to(weight.dtype),
            "weights": torch.cat([weight, self.mu * weight]),
        }

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        """Real and augmented features pass the head as one batch: a head treats each row by itself."""
        features: Tensor = net.features(batch.x)
        own = context.prepared
        if "targets" not in own:
            return adjusted_cross_entropy(net.head(features), batch.y, own["prior"])
        if len(batch.y) < len(own["targets"]):  # the last batch of an epoch
            own = own | self.for_targets(own["targets"][: len(batch.y)], own, context.client)
        both = torch.cat([features, self.augmented(features, batch.y, own["targets"], context)])
        labels = torch.cat([batch.y, own["targets"]])
        return weighted_cross_entropy(net.head(both), labels, own["priors"], own["weights"])

    def augmented(self, features: Tensor, labels: Tensor, targets: Tensor, context: Context) -> Tensor:
        """Features of the target classes; gradients stop here, so that only the head learns from them."""
        prototypes = context.prepared["prototypes"]
        if self.noise == "transfer":
            return transfer_features(features, labels, prototypes, targets, self.lam)
        drawn = torch.from_numpy(context.client.random.standard_normal(features.shape, dtype="float32"))
        return prototypes[targets] + self.lam * context.prepared["spread"] * drawn.to(prototypes.device)

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        if self.mu == 0:
            return {}
        client = context.client
        return {"prototypes": class_prototypes(client.features(net), client.labels, len(client.counts))}

    def shared_template(self, server: Server) -> Tensors:
        return {name: table for name, table in server.state.items() if name == "prototypes"}

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        server = super().next_server(server, means, clients)
        if self.mu == 0:
            return server
        table = means.shared["prototypes"].to(server.state["prototypes"].dtype)
        mass = means.counts.to(torch.float64)
        if self.memory:
            kept = mass == 0
            table = torch.where(kept.unsqueeze(1), server.state["prototypes"], table)
            mass = torch.where(kept, server.state["mass"], mass)
        return replace(server, state={"prototypes": table, "mass": mass})

    def eps_of(self, client: int) -> float:
        return self.eps[client % len(self.eps)] if isinstance(self.eps, tuple) else self.eps
