"""How often, and for whom, is a model scored? On the whole test set, and for each client by itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..base.config import Added, parameters
from .measures import is_scored


@parameters
class Evaluate:
    """What is measured, and when. Round 1 is always scored."""

    every: Annotated[
        int,
        Field(ge=1, description="score every so many rounds; others repeat the last scores"),
        Added(before=1),
    ] = 1
    clients: Annotated[
        Literal["none", "global", "tuned"],
        Field(
            description="accuracy over clients, each on test samples of its classes: of the global model, or also "
            "after local fine-tuning; in simulations"
        ),
        Added(before="none"),
    ] = "none"
    clients_every: Annotated[
        int, Field(ge=1, description="that every so many rounds, a multiple of `every`"), Added(before=10)
    ] = 10
    epochs: Annotated[int, Field(ge=1, description="epochs of that fine-tuning"), Added(before=1)] = 1

    @model_validator(mode="after")
    def _multiples(self) -> Evaluate:
        if self.clients != "none" and self.clients_every % self.every:
            raise ValueError(f"clients_every = {self.clients_every} is no multiple of every = {self.every}")
        return self

    def is_due(self, round: int) -> bool:
        """Is the model scored after this round?"""
        return is_scored(round, self.every)

    def clients_due(self, round: int) -> bool:
        """Is it scored for each client, too?"""
        return self.clients != "none" and round % self.clients_every == 0
