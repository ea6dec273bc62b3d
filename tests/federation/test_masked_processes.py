"""Masked rounds between processes of their own, with Flower's SuperLink and SuperNodes, keys and TLS."""

import os
import time
from pathlib import Path

import pytest

import rebafl
from rebafl.federation.ops.local import open_or_create
from rebafl.runs.record import Record
from support.masked import is_exact

NODES, VICTIM, ROUNDS = 4, 2, 3
APP = {"serverapp": "rebafl.federation.app.server_app:app", "clientapp": "dying_app:app"}
WORDS = (
    "dataset=fashion-mini model=mlp partition.clients=4 partition.samples=60 training.epochs=1 "
    "algorithm=scaffold protect.secagg=true"
)
HOLD = 400.0  # seconds after which a federation that does not go on is given up


def masked_federation(folder: Path, die: str) -> Record:
    """Three rounds of four nodes, one of which dies at this point and stays dead."""

    def environment(name: str) -> dict[str, str]:
        sources = [str(Path(rebafl.__file__).parents[1]), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sources)), "OMP_NUM_THREADS": "1"}
        return {**path, "REBAFL_TEST_DIE": die} if name == f"node-{VICTIM}" else path

    federation = open_or_create(folder, NODES)
    config = {"rounds": ROUNDS, "settings": WORDS, "deadline": 60.0, "min-nodes": NODES - 1, "patience": 2}
    began, record = time.monotonic(), Record(federation.out)
    try:
        federation.begin(config, APP, environment)
        while not record.begun or len(record.rounds()) < ROUNDS:
            assert time.monotonic() - began < HOLD, f"round {len(record.rounds()) if record.begun else 0}"
            time.sleep(0.5)
    finally:
        federation.down()
    return record


@pytest.mark.slow
@pytest.mark.parametrize(("die", "counts"), [("mask:2:before", False), ("unmask:2:before", True)])
def test_a_node_killed_between_stages_leaves_an_exact_sum(tmp_path, die, counts):
    record = masked_federation(tmp_path / "fed", die)
    first, second, third = record.rounds()
    there = first.masked["asked"]  # a node may come a moment after the others, in time for the second round
    assert there >= NODES - 1
    stages = dict.fromkeys(("asked", "advertise", "share", "mask", "agree", "unmask"), there)
    assert first.masked == {**stages, "threshold": 3}
    assert second.masked[die.split(":")[0]] == 3
    assert second.used == set(range(NODES)) - (set() if counts else {VICTIM})
    assert third.used == {0, 1, 3}
    assert [line.updated for line in record.rounds()] == [True] * 3
    config = {"rounds": ROUNDS, "settings": WORDS}
    assert is_exact(config, record, tmp_path / "simulation")
    left = [path for path in (tmp_path / "fed").rglob("session-*") if f"node-{VICTIM}" not in path.parts]
    assert left == [], "those who came to the end have forgotten their secrets"
