from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Batch, Client, Context, Costs, Sent

BELIEFS = "beliefs"


@parameters
class FedNTD(Algorithm):
    """Not-true distillation: of the classes that a sample is not, the client keeps the received model's opinion.

    That opinion is computed once per sample and round, on untransformed inputs, and looked up by position.
    """

    name = "fedntd"
    paper = "Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, 2022"
    costs = Costs(compute="one forward pass over the local data per round; a softmax per step")

    beta: Annotated[float, Field(ge=0, description="weight of the distillation")] = 1.0
    tau: Annotated[float, Field(gt=0, description="temperature")] = 1.0

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        if self.beta == 0:
            return Context(sent, client)
        with torch.no_grad():
            logits: Tensor = net.head(client.features(net))
            beliefs = F.log_softmax(not_true(logits, client.labels) / self.tau, dim=1)
        return Context(sent, client, {BELIEFS: beliefs})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        logits = net(batch.x)
        loss = F.cross_entropy(logits, batch.y)
        if self.beta == 0:
            return loss
        own = F.log_softmax(not_true(logits, batch.y) / self.tau, dim=1)
        received = context.prepared[BELIEFS][batch.index]
        return loss + self.beta * F.kl_div(own, received, reduction="batchmean", log_target=True)


def not_true(logits: Tensor, labels: Tensor) -> Tensor:
    """Each row without the logit of its label."""
    classes = logits.shape[1]
    others = F.one_hot(labels, classes) == 0
    return logits[others].reshape(len(logits), classes - 1)
