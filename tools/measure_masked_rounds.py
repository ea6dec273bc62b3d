"""What does a masked round cost in a real federation? Seconds per round on this machine, plain and masked, one by one.

python tools/measure_masked_rounds.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

from rebafl.federation.ops.local import open_or_create
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record

NODES, ROUNDS = 5, 6
WORDS = "dataset=fashion-mini partition=dirichlet partition.clients=5 training.epochs=1"
RUNS = {"plain": "", "masked": " protect.secagg=true"}


def measure(folder: Path, words: str) -> list[RoundLine]:
    """The rounds of a federation of its own, from the second on: in the first, nodes are still starting."""
    federation = open_or_create(folder, NODES)
    record = Record(federation.out)
    try:
        federation.begin({"rounds": ROUNDS, "settings": WORDS + words, "deadline": 120.0, "min-nodes": NODES})
        while not record.begun or len(record.rounds()) < ROUNDS:
            time.sleep(0.5)
    finally:
        federation.down()
    return record.rounds()[1:]


def main() -> None:
    folder = Path(sys.argv[1])
    found = {name: measure(folder / name, words) for name, words in RUNS.items()}
    usual = median(line.seconds for line in found["plain"])
    print("| rounds | seconds, median | smallest, largest | times the plain one | sent by a client |")
    print("|---|---|---|---|---|")
    for name, lines in found.items():
        seconds = [line.seconds for line in lines]
        assert all(len(line.used) == NODES for line in lines), "a round without all nodes is not what is measured"
        sent = lines[0].bytes_up / NODES / 1e6
        spread = f"{min(seconds):.1f}, {max(seconds):.1f}"
        print(f"| {name} | {median(seconds):.1f} | {spread} | {median(seconds) / usual:.1f} | {sent:.2f} MB |")


if __name__ == "__main__":
    main()
