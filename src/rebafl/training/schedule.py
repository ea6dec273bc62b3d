"""What does a client do of its training in this round? The learning rate, and how much of its work it manages."""

from __future__ import annotations

import math
from dataclasses import replace

from ..algorithms.interface import Training
from ..base.rng import generator

EPOCHS = "epochs"


def in_round(training: Training, seed: int, round: int, client: int) -> Training:
    """The same training with this round's learning rate and this client's epochs; rounds count from 1."""
    lr, epochs = training.lr * rate(training, round), _epochs(training, seed, round, client)
    return training if (lr, epochs) == (training.lr, training.epochs) else replace(training, lr=lr, epochs=epochs)


def rate(training: Training, round: int) -> float:
    """The share of the learning rate that a round has. It depends on the round alone, so resuming changes nothing."""
    warm = min(1.0, round / training.warmup) if training.warmup else 1.0
    length = training.schedule_rounds
    match training.schedule:
        case "constant":
            return warm
        case "step":
            return float(warm * training.schedule_factor ** ((round - 1) // length))
        case "decay":
            return float(warm * training.schedule_factor ** (round - 1))
        case "cosine":  # never quite zero; beyond its end it stays
            return warm * (1 + math.cos(math.pi * min(round - 1, length - 1) / length)) / 2


def _epochs(training: Training, seed: int, round: int, client: int) -> int:
    if not training.epochs_least:
        return training.epochs
    random = generator(seed, EPOCHS, round if training.epochs_drawn == "round" else 0, client)
    return int(random.integers(training.epochs_least, training.epochs + 1))
