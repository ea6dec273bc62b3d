from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from ..base.config import parameters
from .interface import Algorithm, Costs, Fit, Server, Training


@parameters
class FedAvgFT(Algorithm):
    """FedAvg whose server tunes the head each round on a small balanced set of its own, and sends that head."""

    name = "fedavg-ft"
    paper = "Xu et al., Stabilizing and Improving Federated Learning with Non-IID Data and Client Dropout"
    costs = Costs(compute="training of the head at the server, on images of its own")

    samples: Annotated[int, Field(ge=1, description="images of each class at the server, none of them a client's")] = 30
    epochs: Annotated[int, Field(ge=1, description="passes over them per round")] = 5
    lr: Annotated[float, Field(gt=0, description="learning rate of the tuning")] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1, description="momentum of the tuning")] = 0.5

    def server_samples(self) -> int:
        return self.samples

    def refine(self, server: Server, fit: Fit) -> Server:
        training = Training(epochs=self.epochs, lr=self.lr, momentum=self.momentum)
        return replace(server, weights=fit(server.weights, "head", training))
