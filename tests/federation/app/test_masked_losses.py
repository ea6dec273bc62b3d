"""Nodes that die and messages that are lost or changed in masked rounds: an exact sum, or a clean abort."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebafl.federation.app.server.masked_round import CLOSES
from rebafl.secagg.messages import Stage, Survivors, UnmaskRequest
from support.grid import CLIENTS
from support.masked import (
    FEW,
    bytes_of,
    federated,
    flipped,
    is_exact,
    lost_from,
    put_bytes,
    secrets_of,
)
from support.secagg import STAGES


@pytest.mark.parametrize("algorithm", ["rebafl", "scaffold"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("after_answer", [False, True])
def test_a_node_that_dies_at_any_stage_leaves_an_exact_sum(tmp_path, masked, algorithm, stage, after_answer):
    """Before its input has arrived it is left out, state and all; after that it counts."""
    masked["algorithm"] = algorithm
    real, _ = federated(masked, tmp_path, lost_from(2, 2, stage, after_answer))
    line = real.rounds()[1]
    counts = stage in (Stage.AGREE, Stage.UNMASK)
    assert line.updated
    assert line.used == set(range(CLIENTS)) - (set() if counts else {2})
    assert list(line.missing) == ([] if counts else [2])
    if not counts:
        assert line.missing[2].startswith(f"{stage.value}: no complete reply within")
    assert is_exact(masked, real, tmp_path / "simulation")
    assert real.rounds()[2].used == set(range(CLIENTS)), "it takes part again"


@pytest.mark.parametrize("stage", STAGES)
def test_too_few_survivors_discard_the_round_and_the_run_goes_on(tmp_path, masked, stage):
    masked["algorithm"] = "scaffold"
    one, other = lost_from(1, 2, stage, after_answer=False), lost_from(3, 2, stage, after_answer=True)

    def carry(part, round, at, to_server, message):
        arrived = one(part, round, at, to_server, message)
        return None if arrived is None else other(part, round, at, to_server, message)

    real, grid = federated(masked, tmp_path, carry)
    line = real.rounds()[1]
    done = {"advertise": "advertised keys", "share": "shared their secrets", "mask": "sent their input",
            "agree": "agreed", "unmask": "revealed their shares"}  # fmt: skip
    assert line.discarded == "2 " + FEW.format(done[stage.value])
    assert (line.updated, line.used) == (False, set())
    assert [line.updated for line in real.rounds()] == [True, False, True]
    assert is_exact(masked, real, tmp_path / "simulation")
    alive = [file for file in secrets_of(tmp_path) if file.parts[-5] in ("node-0", "node-2")]
    assert alive == [], "those who heard that the round is over have forgotten it"
    assert not [asked for asked in grid.asked if asked[1] == 2 and asked[2] in STAGES[STAGES.index(stage) + 1 :]]


PLACES = [0, 5, 39, 45, 77, 140, 333, -1, -50]  # of a bit: in the head, keys, lists, shares, words, signatures


KINDS_OF_MESSAGE = [(stage, to_server) for stage in STAGES for to_server in (True, False)]
KINDS_OF_MESSAGE.remove((Stage.ADVERTISE, False))  # an order holds no bytes of the protocol


@pytest.mark.parametrize(("stage", "to_server"), KINDS_OF_MESSAGE)
def test_a_flipped_bit_is_noticed(tmp_path, masked, stage, to_server):
    """In any kind of message, in each round at another place: the sum of those who are not concerned."""

    def carry(part, round, at, up, message):
        return flipped(message, PLACES[round - 1]) if (part, at, up) == (2, stage, to_server) else message

    masked |= {"algorithm": "fedavg", "rounds": len(PLACES)}
    real, _ = federated(masked, tmp_path, carry)
    assert is_exact(masked, real, tmp_path / "simulation")
    counts = stage in (Stage.AGREE, Stage.UNMASK)
    for line in real.rounds():
        assert line.updated, "one message of one client costs no more than that client"
        assert line.used == set(range(CLIENTS)) - (set() if counts else {2})
        assert (2 in line.refused) is not counts
        assert line.masked[stage.value] == 3, "it has left the round"


def with_both_lists(message):
    """Client 0 is named as a survivor and as dropped."""
    data = bytes_of(message)
    kind = Survivors if message.content["note"]["stage"] == "agree" else UnmaskRequest
    return put_bytes(message, replace(kind.from_bytes(data), dropped=(0,)).to_bytes())


@pytest.mark.parametrize("stage", [Stage.AGREE, Stage.UNMASK])
def test_no_node_answers_when_a_client_is_in_both_lists(tmp_path, masked, stage):
    def carry(part, round, at, to_server, message):
        return with_both_lists(message) if round == 2 and at is stage and not to_server else message

    real, grid = federated(masked, tmp_path, carry)
    line = real.rounds()[1]
    assert line.discarded == "0 " + FEW.format({"agree": "agreed", "unmask": "revealed their shares"}[stage.value])
    assert [data for _, round, at, data in grid.said if round == 2 and at is stage] == [b""] * CLIENTS
    assert real.rounds()[2].updated
    assert is_exact(masked, real, tmp_path / "simulation")


def test_lists_with_too_few_survivors_are_refused_by_nodes(tmp_path, masked):
    def carry(part, round, stage, to_server, message):
        if round != 2 or stage is not Stage.AGREE or to_server:
            return message
        lists = Survivors.from_bytes(bytes_of(message))
        return put_bytes(message, replace(lists, survivors=(0, 1), dropped=(2, 3)).to_bytes())

    real, grid = federated(masked, tmp_path, carry)
    assert real.rounds()[1].discarded == "0 " + FEW.format("agreed")
    assert [data for _, round, at, data in grid.said if round == 2 and at is Stage.AGREE] == [b""] * CLIENTS


def test_an_input_that_comes_after_its_client_was_declared_dropped_is_not_used(tmp_path, masked):
    """It is sent in place of the next answers; nobody asks the dropped client, so another one passes it on."""
    late = []

    def carry(part, round, stage, to_server, message):
        if (round, to_server) != (2, True):
            return message
        if (part, stage) == (2, Stage.MASK):
            late.append(bytes_of(message))
            return None
        if part == 1 and stage is Stage.AGREE:
            return put_bytes(message, late[0])
        return message

    masked["algorithm"] = "scaffold"
    real, _ = federated(masked, tmp_path, carry)
    line = real.rounds()[1]
    assert line.discarded == "2 " + FEW.format("agreed")
    assert is_exact(masked, real, tmp_path / "simulation")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_closes_in_time_for_the_next(tmp_path, masked, stage):
    """Whichever stage a node is silent in, the round ends by its deadline, and the others have had their time."""
    deadline = 4.0
    masked |= {"rounds": 1, "deadline": deadline, "algorithm": "fedavg"}
    real, _ = federated(masked, tmp_path, lost_from(2, 1, stage, after_answer=False))
    (line,) = real.rounds()
    assert line.updated
    assert line.seconds < deadline + 1.5
    assert line.seconds > CLOSES[stage] * deadline - 1
