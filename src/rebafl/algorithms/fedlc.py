from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Batch, Client, Context, Costs, Sent
from .losses import adjusted_cross_entropy, count_margin


@parameters
class FedLC(Algorithm):
    """Logit calibration: each logit loses tau n_c^(-1/4), so that rare classes must win by more."""

    name = "fedlc"
    paper = "Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration, 2022"
    costs = Costs(compute="one addition per logit")

    tau: Annotated[float, Field(ge=0, description="size of the margins")] = 1.0

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        return Context(sent, client, {"margin": count_margin(client.counts, self.tau)})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        return adjusted_cross_entropy(net(batch.x), batch.y, context.prepared["margin"])
