"""The federation gives the simulator's bits; what is late or lost costs one update, not the run."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from flwr.app import Error, Message

from rebafl import UserError
from rebafl.algorithms import KINDS
from rebafl.runs.holdings import read_holdings
from rebafl.runs.record import Record
from rebafl.runs.stopping import request_stop, stopped_after
from support.grid import STATEFUL, FakeGrid, absent, asked_by, nodes_of, run, same_server, simulated
from support.toy import lines


def test_a_superlink_that_is_gone_ends_the_run_and_not_the_round(config):
    class Gone(FakeGrid):
        def get_nodes(self):
            if any(round == 2 for _, round, _ in self.asked):
                raise httpx.ConnectError("refused")
            return super().get_nodes()

        def pull_messages(self, ids):
            self.get_nodes()
            return super().pull_messages(ids)

    with pytest.raises(httpx.ConnectError, match="refused"):
        run(config, Gone(nodes_of(config)))
    assert len(Record(Path(config["out"])).rounds()) == 1


WORDS = defaultdict(str, {"fedavg-ft": " algorithm.samples=3"})


@pytest.mark.parametrize("algorithm", [name for name in KINDS if not KINDS[name].pooled])
def test_every_algorithm_gives_the_simulators_bits(tmp_path, config, algorithm):
    """With some clients away in some rounds, so that state has to wait for them."""
    config["algorithm"] = algorithm
    config["settings"] += WORDS[algorithm]
    config["participation"] = "bernoulli"
    real = run(config)
    expected = simulated(config, tmp_path / "simulation")
    assert same_server(real, expected)
    assert lines(real.path) == lines(expected.path)


@pytest.mark.parametrize("algorithm", ["rebafl", *STATEFUL])
@pytest.mark.parametrize("how", ["silent", "late", "gone"])
def test_an_upload_that_misses_the_deadline_leaves_no_trace(tmp_path, config, algorithm, how):
    """Not at the server, nor at the client, whose state is rolled back: as if the client had been away."""
    config["algorithm"] = algorithm

    def conduct(part, round, reply):
        if (part, round) != (2, 2):
            return reply
        gone = Message(Error(code=5, reason="node unavailable"), reply_to=asked_by(reply))
        return {"silent": None, "late": "late", "gone": gone}[how]

    real = run(config, FakeGrid(nodes_of(config), conduct))
    assert same_server(real, simulated(config, tmp_path / "simulation", **absent(tmp_path, (2, 2))))
    line = lines(real.path)[1]
    assert line["active"] == [0, 1, 2, 3]
    assert line["lost"] == [2]
    assert line["missing"].keys() == {"2"}
    assert line["refused"] == {}
    assert line.get("late") == (None if how == "gone" else [2]), "a node that is still connected is late, not gone"
    assert "disconnected" not in line
    assert "restarted" not in lines(real.path)[2]


def test_who_was_not_connected_is_told_from_who_was_not_chosen(tmp_path, config):
    class OneGone(FakeGrid):
        def get_nodes(self):
            return [node for node in self.nodes if node.public_key != b"key 3"]

    (tmp_path / "trace.csv").write_text("client,round\n0,1\n1,1\n3,1\n0,2\n0,3\n3,3\n")
    settings = f" participation=trace participation.path={tmp_path / 'trace.csv'}"
    rows = lines(run({**config, "settings": config["settings"] + settings}, OneGone(nodes_of(config))).path)
    assert [row["active"] for row in rows] == [[0, 1], [0], [0]]
    assert [row.get("unreached") for row in rows] == [[3], None, [3]]
    assert [row["disconnected"] for row in rows] == [[3]] * 3


def test_a_federation_is_stopped_between_rounds_and_says_what_clients_hold(config):
    out = Path(config["out"])

    def conduct(part, round, reply):
        if round == 2:
            request_stop(out)
        return reply

    assert run(config, FakeGrid(nodes_of(config), conduct)).round == 2
    assert stopped_after(out) == 2
    held = read_holdings(out)
    assert held.source == "uploads"
    assert {client: sum(row) for client, row in held.counts.items()} == dict.fromkeys(range(4), 20)
    assert run(config).round == 3
    assert stopped_after(out) is None


def test_rounds_without_a_usable_reply_leave_the_model_as_it_is_and_end_the_run(config):
    grid = FakeGrid(nodes_of(config), lambda part, round, reply: reply if round == 1 else None)
    with pytest.raises(
        UserError, match=r"2 rounds in a row brought no usable reply \(client 0: no complete reply within 0.3 s"
    ):
        run(config, grid, rounds=9)
    rows = lines(Path(config["out"]))
    assert "2 rounds in a row" in (Path(config["out"]) / "failure.txt").read_text()
    assert [row["updated"] for row in rows] == [True, False, False]
    assert rows[1]["lost"] == [0, 1, 2, 3]
    assert rows[0]["accuracy"] == rows[1]["accuracy"] == rows[2]["accuracy"]
    assert rows[0]["loss"] == rows[2]["loss"]


def test_one_good_round_renews_the_patience(config):
    grid = FakeGrid(nodes_of(config), lambda part, round, reply: reply if round % 2 else None)
    assert [row["updated"] for row in lines(run(config, grid, rounds=5).path)] == [True, False, True, False, True]


def test_too_few_nodes_are_waited_for_but_not_for_ever(config):
    grid = FakeGrid(nodes_of(config)[:2])
    with pytest.raises(UserError, match=r"Only 2 of at least 3 nodes were connected after 0\.2 s"):
        run(config, grid, **{"min-nodes": 3})
    failure = Path(config["out"]) / "failure.txt"
    assert failure.read_text().startswith("Only 2 of at least 3")
    assert run(config, FakeGrid(nodes_of(config)[:3]), **{"min-nodes": 3}).round == 3  # and the run is resumed
    assert not failure.exists()


def test_chosen_clients_that_are_not_there_are_away(tmp_path, config):
    """Enough nodes are connected, but in round 2 only such are chosen as are not."""
    (tmp_path / "trace.csv").write_text("client,round\n0,1\n3,2\n1,3\n")
    words = f"{config['settings']} participation=trace participation.path={tmp_path / 'trace.csv'}"
    rows = lines(run(config, FakeGrid(nodes_of(config)[:3]), settings=words).path)
    assert [(row["active"], row["updated"]) for row in rows] == [([0], True), ([], False), ([1], True)]


def test_a_node_that_comes_back_takes_part_again(config):
    class Coming(FakeGrid):
        def get_nodes(self):
            rounds = {round for _, round, _ in self.asked}
            return self.nodes[:3] if max(rounds, default=0) == 1 else self.nodes

    active = [row["active"] for row in lines(run(config, Coming(nodes_of(config))).path)]
    assert active == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]]
