from __future__ import annotations

from ..base.config import parameters
from .interface import Algorithm, Costs


@parameters
class Centralised(Algorithm):
    """No federation: all that clients hold lies in one place and is trained on there. The ceiling of a comparison."""

    name = "centralised"
    costs = Costs(communication="the data themselves", compute="all data in each round, whoever is away")
    pooled = True
