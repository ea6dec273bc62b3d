"""Masked rounds of a federation: the simulator's bits, what the record says, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rebafl import UserError
from rebafl.algorithms import KINDS
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.server.federate import federate
from rebafl.secagg.messages import Stage
from support.grid import FakeGrid, run, same_server, simulated
from support.masked import (
    MaskedGrid,
    federated,
    is_exact,
    lost_from,
    masked_nodes,
    secrets_of,
)
from support.methods import BOUNDS
from support.toy import lines

WORDS = defaultdict(str, {"fedavg-ft": " algorithm.samples=3"})
PROTECTED = {
    "few": " protect.min_count=11",
    "rounded": " protect.counts=rounded",
    "holders": " protect.min_holders=3",
    "clipped": " protect.clip=0.5 protect.update_clip=0.05",
}
PROTECTED["all"] = PROTECTED["clipped"] + " protect.counts=withheld protect.min_count=3 protect.min_holders=2"


def without_stages(path: Path) -> list[dict]:
    return [{key: value for key, value in row.items() if key != "masked"} for row in lines(path)]


@pytest.mark.parametrize("algorithm", [name for name in KINDS if name not in BOUNDS])
def test_every_algorithm_gives_the_simulators_bits(tmp_path, masked, algorithm):
    masked["algorithm"] = algorithm
    masked["settings"] += WORDS[algorithm]
    masked["participation"] = "bernoulli"
    masked["participation.p"] = 0.8
    real, _ = federated(masked, tmp_path)
    expected = simulated(masked, tmp_path / "simulation")
    assert same_server(real, expected)
    assert without_stages(real.path) == lines(expected.path)
    assert sum(line.updated for line in real.rounds()) >= 2
    assert secrets_of(tmp_path) == []


@pytest.mark.parametrize("protect", PROTECTED)
def test_so_do_the_protections_that_combine_with_it(tmp_path, masked, protect):
    masked |= {"algorithm": "rebafl", "partition.kind": "dirichlet"}
    masked["settings"] = masked["settings"].replace("partition.samples=20", "") + PROTECTED[protect]
    real, _ = federated(masked, tmp_path)
    expected = simulated(masked, tmp_path / "simulation")
    assert same_server(real, expected)
    assert without_stages(real.path) == lines(expected.path)
    assert all(line.updated and not line.refused for line in real.rounds())


def test_the_record_says_who_was_there(tmp_path, masked):
    real, _ = federated(masked, tmp_path, lost_from(2, 2, Stage.AGREE, after_answer=False))
    everyone = {"asked": 4, "threshold": 3, "advertise": 4, "share": 4, "mask": 4, "agree": 4, "unmask": 4}
    assert [line.masked for line in real.rounds()] == [everyone, {**everyone, "agree": 3, "unmask": 3}, everyone]
    assert real.config()["protect"]["secagg"] is True
    assert any("follows the protocol" in sentence for sentence in real.environment()["warnings"])
    assert [line.diversity for line in real.rounds()] == [None] * 3


def test_a_plain_upload_is_not_given_in_a_masked_run_nor_a_masked_one_in_a_plain_run(tmp_path, masked):
    plain = {**masked, "settings": masked["settings"].replace("protect.secagg=true", ""), "out": str(tmp_path / "p")}
    nodes = masked_nodes(masked, tmp_path / "fed")
    grid: Any = FakeGrid(nodes)  # their run is masked, and the server's is not
    with pytest.raises(UserError, match=r"masks its uploads.*and a plain one was asked for; it is not given"):
        federate(grid, *read_run_config({**plain, "members": masked["members"]}))
    for node in nodes:
        node.context.run_config = plain
    grid = MaskedGrid(nodes)
    with pytest.raises(UserError, match=r"2 rounds in a row .*does not mask its uploads.*a masked one was asked for"):
        federate(grid, *read_run_config(masked))


@pytest.mark.parametrize("missing", ["state", "key", "members"])
def test_a_node_that_lacks_a_file_says_which(tmp_path, masked, missing):
    nodes = masked_nodes(masked, tmp_path / "fed")
    del nodes[1].context.node_config[missing]
    real = run(masked, MaskedGrid(nodes))
    assert f'needs {missing}="PATH" in the node\'s config' in real.rounds()[0].refused[1]
    assert real.rounds()[0].used == {0, 2, 3}


def test_a_node_acts_for_no_other_client(tmp_path, masked):
    nodes = masked_nodes(masked, tmp_path / "fed")
    nodes[1].context.node_config["key"] = str(tmp_path / "fed/node-2/node.key")
    real = run(masked, MaskedGrid(nodes))
    assert "this node's key is not that of client 1" in real.rounds()[0].refused[1]


def test_a_node_that_knows_other_members_takes_no_part(tmp_path, masked):
    """Keys come from its own file: a client that only the server knows is none."""
    nodes = masked_nodes(masked, tmp_path / "fed")
    own = tmp_path / "members.toml"
    lines_ = (tmp_path / "fed/members.toml").read_text().splitlines()
    own.write_text("\n".join(line for line in lines_ if not line.startswith("3 ")) + "\n")
    nodes[0].context.node_config["members"] = str(own)
    real = run(masked, MaskedGrid(nodes))
    assert "client 3 is asked, and is not in the members file" in real.rounds()[0].refused[0]
    assert is_exact(masked, real, tmp_path / "simulation")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ({"max-norm": 5.0}, "max-norm=5 compares the uploads of single clients"),
        ({"counts": "split"}, "counts=split compares the class counts of single clients"),
        ({"counts": "fixed"}, "use counts=free"),
        ({"members": ""}, "needs the key of each client"),
    ],
)
def test_checks_that_need_single_uploads_are_refused_at_the_start(tmp_path, masked, word, reason):
    nodes = masked_nodes(masked, tmp_path / "fed")
    with pytest.raises(UserError, match=reason):
        run(masked, MaskedGrid(nodes), **word)
    assert not Path(masked["out"]).exists()


def test_too_few_nodes_for_a_sum_are_a_discarded_round(tmp_path, masked):
    nodes = masked_nodes(masked, tmp_path / "fed")
    real = run(masked, MaskedGrid(nodes[:1]), rounds=1)
    assert real.rounds()[0].discarded == "the sum of a single client hides nothing; at least 2 must take part"
    assert real.rounds()[0].updated is False
