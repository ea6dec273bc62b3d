from __future__ import annotations

from ..base.config import parameters
from ..models.contract import Part
from .interface import Algorithm, Costs


@parameters
class FedBABU(Algorithm):
    """Trains the body only: the head keeps its initial value, is not decayed and not uploaded."""

    name = "fedbabu"
    paper = "Oh et al., FedBABU: Towards Enhanced Representation for Federated Image Classification, 2022"
    costs = Costs(communication="less than FedAvg: the head is not uploaded", compute="less: no gradients for the head")

    def trains(self, part: Part) -> bool:
        return part == "features"
