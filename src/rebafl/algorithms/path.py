"""How far does a round's training lead? The length of a client's way for a gradient of one, momentum counted."""

from __future__ import annotations

from .interface import Client, Training


def path_length(training: Training, steps: int) -> float:
    """How far a constant gradient of one would move a weight in so many steps: lr Σ_k (1 - β^k) / (1 - β)."""
    beta = training.momentum
    return training.lr * sum((1 - beta**k) / (1 - beta) for k in range(1, steps + 1))


def planned_steps(client: Client) -> int:
    """How many steps a client's round will take: known before the first."""
    per_epoch = -(-len(client.labels) // client.training.batch)
    return client.training.epochs * per_epoch
