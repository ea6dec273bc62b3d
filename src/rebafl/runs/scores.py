"""How good is the model after a round? On the whole test set, on what was held out, and for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..algorithms.hooks import checked_weights
from ..algorithms.interface import Algorithm, Server
from ..base.config import Plain
from ..engines import Engine
from ..population.partition import Split
from ..training.evaluate import Score, total
from ..training.personal import Recall, accuracy_for
from . import measures
from .events import RoundLine


@dataclass(frozen=True)
class Scores:
    """How good a server is on the whole test set; `others` are accuracies of other weights, by name.

    `validation` is its score on the part of the training data that was held out, if one was.
    """

    accuracy: float
    loss: float
    recall: Sequence[float | None]
    others: Mapping[str, float]
    validation: Score | None

    def plain(self) -> Plain:
        """By the names that they have in a `RoundLine`."""
        return {
            "accuracy": self.accuracy,
            "loss": self.loss,
            "recall": self.recall,
            "other_accuracies": self.others,
            "validation_accuracy": self.validation.accuracy if self.validation else None,
            "validation_loss": self.validation.mean_loss if self.validation else None,
        }


def scores_of(engine: Engine, algorithm: Algorithm, server: Server, held_out: bool) -> Scores:
    hook = "evaluated" if type(algorithm).scored is Algorithm.scored else "scored"
    counted = [checked_weights(algorithm, hook, model, server.weights) for model in algorithm.scored(server)]
    score = total([engine.score(model) for model in counted])
    others = {}
    for name, weights in algorithm.also_evaluated(server).items():
        checked = checked_weights(algorithm, "also_evaluated", weights, server.weights)
        others[name] = engine.score(checked).accuracy
    validation = total([engine.score(model, "validation") for model in counted]) if held_out else None
    return Scores(score.accuracy, score.mean_loss, score.recall, others, validation)


def carried_on(last: RoundLine) -> Plain:
    """The scores of an earlier line, for one whose own model is not scored."""
    names = ("accuracy", "loss", "recall", "other_accuracies", "validation_accuracy", "validation_loss")
    return {"scored": last.scored or last.round, **{name: getattr(last, name) for name in names}}


def over_clients(split: Split, recalls: Mapping[int, Recall]) -> dict[str, float]:
    """Mean, worst tenth and spread over these clients; of those that have samples of a class that was tested."""
    scores = [accuracy_for(split.counts(client), recalls[client]) for client in sorted(recalls)]
    accuracies = [score for score in scores if score is not None]
    return measures.over_clients(accuracies) if accuracies else {}
