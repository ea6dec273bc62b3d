from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..base.config import parameters
from ..models.contract import Classifier
from .interface import Algorithm, Context, Costs, gradients


@parameters
class FedProx(Algorithm):
    """Adds mu/2 |w - w_received|² to the loss: its gradient pulls each local model back to where it started."""

    name = "fedprox"
    paper = "Li et al., Federated Optimization in Heterogeneous Networks, 2020"
    costs = Costs(compute="one subtraction per weight and step")

    mu: Annotated[float, Field(ge=0, description="strength of the pull")] = 0.001

    def correct(self, net: Classifier, context: Context) -> None:
        for name, parameter, gradient in gradients(net):
            gradient.add_(parameter.detach() - context.sent.weights[name], alpha=self.mu)
