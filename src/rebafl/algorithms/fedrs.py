from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Batch, Client, Context, Costs, Sent


@parameters
class FedRS(Algorithm):
    """Restricted softmax: the logits of classes that a client does not hold are scaled down."""

    name = "fedrs"
    paper = "Li & Zhan, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data, 2021"
    costs = Costs(compute="one multiplication per logit")

    alpha: Annotated[float, Field(ge=0, le=1, description="scale of missing classes' logits")] = 0.5

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        return Context(sent, client, {"scale": torch.where(client.counts > 0, 1.0, self.alpha)})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        return F.cross_entropy(net(batch.x) * context.prepared["scale"], batch.y)
