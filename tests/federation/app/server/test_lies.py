"""Whatever one member sends: its update is left out, and the others' count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rebafl import UserError
from rebafl.federation.app.records import LONGEST
from support.grid import CONFIG, FakeGrid, absent, nodes_of, run, same_server, simulated
from support.lies import ESCAPE, LIES, crashed, every
from support.toy import lines

HELD = {"algorithm": "scaffold", "max-norm": 50.0, "rounds": 2}


@pytest.fixture(scope="session")
def honest(tmp_path_factory, toy_file):
    """The run in which client 2 is away in round 2."""
    folder = tmp_path_factory.mktemp("honest")
    away = absent(folder, (2, 2))
    return simulated({**CONFIG, **HELD, "dataset": toy_file}, folder / "run", **away)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_costs_the_liar_its_update_and_nothing_else(config, honest, name):
    lie, reason = LIES[name]
    grid = FakeGrid(nodes_of(config), lambda part, round, reply: lie(reply) if (part, round) == (2, 2) else reply)
    real = run(config, grid, **HELD)
    rows = lines(real.path)
    left_out = {**rows[1]["refused"], **rows[1].get("missing", {})}
    assert left_out.keys() == {"2"}
    assert reason in left_out["2"]
    assert left_out["2"].isprintable()
    assert len(left_out["2"]) <= LONGEST
    assert rows[0]["refused"] == {}
    assert same_server(real, honest)


def test_there_are_enough_kinds_of_lies():
    assert len(LIES) > 70


def test_what_a_node_says_reaches_the_failure_note_and_the_log_harmlessly(config, caplog):
    caplog.set_level("INFO", "flwr")
    grid = FakeGrid(nodes_of(config), lambda part, round, reply: crashed(0, ESCAPE)(reply))
    with pytest.raises(UserError, match="2 rounds in a row"):
        run(config, grid)
    text = (Path(config["out"]) / "failure.txt").read_text()
    assert text.strip().isprintable()
    assert "evil" in text
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize("algorithm", ["rebafl", "scaffold", "fedavg"])
def test_a_member_that_moves_the_weights_as_far_as_allowed_costs_one_round(config, algorithm):
    """The model is beyond training then: the round is discarded, and after that the member stands out."""
    push = every("change", lambda each: torch.full_like(each, 9e5) if each.is_floating_point() else each)

    def conduct(part, round, reply):
        if part == 2 and round > 1:
            push(reply.content)
        return reply

    rows = lines(run(config, FakeGrid(nodes_of(config), conduct), rounds=4, algorithm=algorithm).path)
    assert "the loss on the test data would be" in rows[1]["discarded"]
    assert [row["updated"] for row in rows] == [True, False, True, True]
    assert rows[1]["loss"] == rows[0]["loss"]
    assert [row["refused"].keys() for row in rows[2:]] == [{"2"}] * 2
    assert "times the median client's" in rows[2]["refused"]["2"]
