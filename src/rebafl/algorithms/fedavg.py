from __future__ import annotations

from ..base.config import parameters
from .interface import Algorithm


@parameters
class FedAvg(Algorithm):
    """Local SGD, and the mean of the local models weighted by their samples: every hook's default."""

    name = "fedavg"
    paper = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017"
