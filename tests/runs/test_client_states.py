"""Client states live on the disk, and move on only with an upload that was taken."""

import subprocess
import sys

import pytest
import torch

from rebafl.base.errors import UserError
from rebafl.base.files import sha256
from rebafl.base.tensors import pack
from support.toy import run_toy


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("dropout", ["away", "lost"])
def test_only_clients_whose_upload_was_taken_move_on(tmp_path, toy, dropout):
    """Absent or lost: the state file stays the same, byte for byte."""
    seen: dict[int, bytes] = {}
    for rounds in (1, 2, 3, 4):
        run = run_toy(tmp_path / "r", toy, algorithm="counting", rounds=rounds, dropout=dropout)
        line = run.rounds()[-1]
        files = {int(path.name.split("-")[1]): path.read_bytes() for path in run.checkpoint.glob("client-*")}
        arrived = set(line.active) - set(line.lost)
        assert {client for client in files if files[client] != seen.get(client)} == arrived
        seen = files
    counts = {client: int(run.client_state(client)["n"]) for client in seen}
    took_part = [set(line.active) - set(line.lost) for line in run.rounds()]
    assert counts == {client: sum(client in part for part in took_part) for client in counts}


@pytest.mark.usefixtures("counting")
def test_a_lost_or_strange_client_state_is_noticed(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="counting", participation="always")
    state = next(run.checkpoint.glob("client-2-*"))
    good = state.read_bytes()
    state.unlink()
    with pytest.raises(UserError, match="5 of 6 client states"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    other = pack({"state": {"n": torch.tensor(1)}})
    state.write_bytes(other)
    with pytest.raises(UserError, match=r"client-2-3-.* is damaged \(its digest is another\)"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    state.unlink()
    foreign = state.with_name(f"client-2-3-{sha256(other)[:32]}.safetensors")
    foreign.write_bytes(other)
    with pytest.raises(UserError, match="not those that were committed"):
        run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5)
    foreign.unlink()
    state.write_bytes(good)
    assert run_toy(tmp_path / "r", toy, algorithm="counting", participation="always", rounds=5).round == 5


@pytest.mark.slow
def test_twenty_thousand_stateful_clients_fit_into_memory(tmp_path):
    """Client state lives on disk: 20 of 20,000 Scaffold clients a round, on the CIFAR-10 network."""
    code = """
import resource, sys
import numpy as np, rebafl
from rebafl.data.arrays import from_arrays
from rebafl.models.networks import CifarCNN
x = np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
y = np.arange(2000) % 10
data = from_arrays("random", {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": y[:100]})
settings = {"model": "cifar-cnn", "algorithm": "scaffold", "rounds": 3, "workers": 1,
            "partition": {"clients": 20000, "samples": 20}, "participation": {"kind": "fraction", "share": 0.001},
            "training": {"epochs": 1}}
record = rebafl.simulate(settings, sys.argv[1], data=data, model=lambda: CifarCNN((3, 32, 32), 10))
print(len(list(record.checkpoint.glob("client-*"))), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "r"], capture_output=True, text=True, check=True)
    states, megabytes = map(int, done.stdout.split())
    assert 57 <= states <= 60
    assert megabytes < 2000
