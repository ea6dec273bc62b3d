"""When has a run learned enough? When the validation part has not got better for a number of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from ..base.config import parameters
from .measures import best_round


@parameters
class EarlyStop:
    """Whether a run may end before its last round. It looks at the validation part, never at the test set."""

    kind: Annotated[
        Literal["never", "plateau"], Field(description="plateau: after `patience` rounds without a better model")
    ] = "never"
    patience: Annotated[int, Field(ge=1, description="rounds in a row that bring no better validation accuracy")] = 20

    def is_over(self, validation: Sequence[float]) -> bool:
        """Do these accuracies on the validation part, one for each round so far, end the run?"""
        if self.kind == "never" or not validation:
            return False
        return len(validation) - best_round(validation) >= self.patience
