from __future__ import annotations

from torch import Tensor

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Batch, Client, Context, Costs, Sent
from .losses import adjusted_cross_entropy, log_prior


@parameters
class BsmFedAvg(Algorithm):
    """FedAvg with balanced softmax: the client's class frequencies enter its softmax as a prior."""

    name = "bsm-fedavg"
    paper = "Chen & Chao, On Bridging Generic and Personalized Federated Learning for Image Classification, 2022"
    costs = Costs(compute="one addition per logit")

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        return Context(sent, client, {"prior": log_prior(client.counts, eps=0.0)})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        return adjusted_cross_entropy(net(batch.x), batch.y, context.prepared["prior"])
