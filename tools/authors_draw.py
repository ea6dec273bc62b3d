"""Which classes and which rounds did the clients of the authors' public code get?

The item `authors-draw` of `rebafl paper` repeats both. Their code seeds numpy's old generator with 2022 and draws two
of ten classes for one client after another; then it seeds it with 520 and draws, in every round, a number for each
client, which takes part if that is below p, all again if nobody does. Nothing else there draws from that generator
while it trains, so the rounds are the same for every method.

    python tools/authors_draw.py    # prints the classes as a word of `rebafl run`, writes who takes part as a trace
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

TRACE = Path(__file__).parents[1] / "src/rebafl/paper/authors-participation.csv"
CLIENTS, CLASSES, HELD, P, ROUNDS = 20, 10, 2, 0.5, 200


def classes_held() -> list[list[int]]:
    """The classes of each client, in the order in which they were drawn."""
    random = np.random.RandomState(2022)
    return [random.choice(CLASSES, HELD, replace=False).tolist() for _ in range(CLIENTS)]


def takes_part() -> np.ndarray:
    """A truth value for each round and client."""
    random = np.random.RandomState(520)
    rounds: list[np.ndarray] = []
    while len(rounds) < ROUNDS:
        present = random.rand(CLIENTS) < P
        if present.any():
            rounds.append(present)
    return np.stack(rounds)


def as_trace(present: np.ndarray) -> str:
    """CSV, a line for each stay of a client: the first and the last round of it, counted from 1."""
    lines = ["client,first,last"]
    for client, there in enumerate(present.T):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(int), [0]])))
        lines += [f"{client},{first + 1},{end}" for first, end in edges.reshape(-1, 2)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print("partition.classes=" + str(classes_held()).replace(" ", ""))
    TRACE.write_text(as_trace(takes_part()))
