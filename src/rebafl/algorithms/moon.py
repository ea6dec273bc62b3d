from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, load_weights, weights_of
from .aggregate import Upload
from .interface import Algorithm, Batch, Client, Context, Costs, Sent, Server


@parameters
class Moon(Algorithm):
    """Pulls each feature towards the received model's and away from the client's own last model's.

    Both are computed once per sample and round, on untransformed inputs, and looked up by position.
    """

    name = "moon"
    paper = "Li et al., Model-Contrastive Federated Learning, 2021"
    costs = Costs("the client's last model", "none", "two forward passes over the local data per round")

    mu: Annotated[float, Field(ge=0, description="weight of the contrastive term")] = 1.0
    tau: Annotated[float, Field(gt=0, description="temperature")] = 0.5

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        if self.mu == 0:
            return Context(sent, client)
        received = client.features(net)
        if client.state is None:  # a first-time client's previous model is the received one
            return Context(sent, client, {"global": received, "previous": received})
        load_weights(net, client.state)
        previous = client.features(net)
        load_weights(net, sent.weights)
        return Context(sent, client, {"global": received, "previous": previous})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        features = net.features(batch.x)
        loss = F.cross_entropy(net.head(features), batch.y)
        if self.mu == 0:
            return loss
        alike = F.cosine_similarity(features, context.prepared["global"][batch.index])
        stale = F.cosine_similarity(features, context.prepared["previous"][batch.index])
        pairs = torch.stack([alike, stale], dim=1) / self.tau
        return loss + self.mu * F.cross_entropy(pairs, torch.zeros_like(batch.y))

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        """The local model itself, whatever became of its upload: it is never sent."""
        return weights_of(net) if self.mu > 0 else {}

    def client_state_template(self, server: Server) -> Tensors:
        return server.weights if self.mu > 0 else {}
