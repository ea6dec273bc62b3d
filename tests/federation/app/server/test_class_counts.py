"""A client's class counts are what it said first, or what the server knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rebafl import UserError
from rebafl.algorithms.aggregate import Upload
from rebafl.federation.app.records import from_arrays
from rebafl.federation.app.server.class_counts import ClassCounts
from support.grid import FakeGrid, nodes_of, run
from support.lies import counts, within
from support.toy import lines


def test_counts_are_what_a_client_said_first_also_after_a_restart(config):
    def twice(part, round, reply):
        if (part, round) == (2, 2):
            first = from_arrays(reply.content["counts"])["counts"]
            counts(*(2 * first).tolist())(reply.content)
        return reply

    run(config, rounds=1)
    table = Path(config["out"]) / "counts.json"
    assert json.loads(table.read_text()).keys() == {"0", "1", "2", "3"}
    refused = lines(run(config, FakeGrid(nodes_of(config), twice), rounds=2).path)[1]["refused"]
    assert "impossible class counts" in refused["2"]
    table.write_text(
        json.dumps({client: each for client, each in json.loads(table.read_text()).items() if client != "2"})
    )
    again = FakeGrid(nodes_of(config), lambda part, round, reply: twice(part, 2, reply))
    assert lines(run(config, again, rounds=3).path)[2]["refused"] == {}  # the way for data that have changed
    assert lines(run(config, FakeGrid(nodes_of(config)), rounds=4, counts="free").path)[3]["refused"] == {}
    table.write_text("half")
    with pytest.raises(UserError, match=r"counts\.json is damaged"):
        run(config, rounds=5)


def test_the_server_knows_the_counts_of_a_part_of_its_own_data(config):
    lie = FakeGrid(nodes_of(config), lambda part, round, reply: within(counts(5, 5, 5, 5))(reply))
    with pytest.raises(UserError, match="impossible class counts"):
        run(config, lie, counts="split", patience=1)
    assert lines(run(config, counts="split", rounds=2).path)[1]["refused"] == {}


def test_counts_of_clients_that_were_not_accepted_are_not_kept(tmp_path):
    counts_table = ClassCounts(tmp_path / "counts.json", "fixed", split=None)
    assert counts_table.objection(Upload(1, {}, torch.tensor([3, 4]))) is None
    counts_table.remember({1: [1, 2]})
    assert "this client holds [1, 2]" in counts_table.objection(Upload(1, {}, torch.tensor([3, 4])))
    counts_table.remember({1: [3, 4], 2: [5, 6]})
    assert ClassCounts(tmp_path / "counts.json", "fixed", split=None).first == {1: [1, 2], 2: [5, 6]}
