from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Batch, Context


@parameters
class LabelSmoothing(Algorithm):
    """FedAvg with smoothed labels: the variant of which the ReBaFL paper says that it does not help."""

    name = "label-smoothing"
    paper = "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016"

    smoothing: Annotated[float, Field(ge=0, lt=1, description="share of the label spread over all classes")] = 0.1

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        return F.cross_entropy(net(batch.x), batch.y, label_smoothing=self.smoothing)
