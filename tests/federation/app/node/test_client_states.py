"""A node whose client state is lost or damaged starts afresh."""

from __future__ import annotations

import re

import torch
from flwr.app import RecordDict

from rebafl.base.tensors import pack
from rebafl.federation.app.node.client_states import FolderStore, confirmed_state
from support.damage import flips
from support.grid import FakeGrid, nodes_of, run
from support.toy import lines

STATE = {"control": torch.arange(5.0)}


def test_a_flipped_bit_of_a_nodes_state_counts_as_lost(tmp_path):
    kept = FolderStore(tmp_path)
    kept.put(3, STATE)
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"round-3-[0-9a-f]{64}\.safetensors", path.name)
    assert torch.equal(confirmed_state(kept, 3)[0]["control"], STATE["control"])
    for damaged in flips(path.read_bytes(), 100):
        path.write_bytes(damaged)
        state, reason = confirmed_state(kept, 3)
        assert state is None
        assert "the state after round 3 is damaged" in reason


def test_states_of_earlier_versions_are_read_and_a_round_has_one_file(tmp_path):
    kept = FolderStore(tmp_path)
    (tmp_path / "round-3.safetensors").write_bytes(pack({"state": STATE}))
    assert torch.equal(confirmed_state(kept, 3)[0]["control"], STATE["control"])
    kept.put(3, {"control": torch.ones(2)})
    kept.put(3, {"control": torch.zeros(2)})
    kept.put(4, STATE)
    assert kept.rounds() == [3, 4]
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(confirmed_state(kept, 3)[0]["control"], torch.zeros(2))
    assert [path.name[:8] for path in tmp_path.iterdir()] == ["round-3-"], "what does not count is removed"


def test_a_node_that_lost_its_state_starts_afresh_and_that_is_recorded(config):
    config["algorithm"] = "scaffold"
    nodes = nodes_of(config)

    def forget(part, round, reply):
        if (part, round) == (1, 2):
            nodes[1].context.state = RecordDict()
        return reply

    rows = lines(run(config, FakeGrid(nodes, forget)).path)
    assert rows[2]["restarted"] == [1]
    assert rows[2]["refused"] == {}
    assert "restarted" not in rows[1]


def test_a_damaged_state_file_counts_as_lost(tmp_path, config):
    config["algorithm"] = "feddyn"

    def damage(part, round, reply):
        if round == 2 and part == 3:
            next((tmp_path / "kept").rglob("client-3/round-2-*.safetensors")).write_bytes(b"half")
        return reply

    rows = lines(run(config, FakeGrid(nodes_of(config, tmp_path / "kept"), damage)).path)
    assert rows[2]["restarted"] == [3]
