"""What nodes keep to themselves: no step is done twice, no upload is summed twice, and no secret outlives its round."""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rebafl.federation.app.masking import Call
from rebafl.federation.app.node.sessions import Session, Sessions
from rebafl.federation.app.records import failure_of
from rebafl.runs.rounds import Round
from rebafl.secagg.messages import MaskedInput, Stage
from support.grid import CLIENTS, run, same_server, simulated
from support.masked import (
    FEW,
    MaskedGrid,
    bytes_of,
    federated,
    is_exact,
    masked_nodes,
    secrets_of,
)
from support.secagg import STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_a_message_that_comes_twice_is_answered_once(tmp_path, masked, stage):
    """What the second answer says is of no use, and the node has left the round."""
    second = []

    def carry(part, round, at, to_server, message):
        if (part, round, at, to_server) == (2, 2, stage, True):
            (asked,) = [sent for sent in kept if sent.metadata.message_id == message.metadata.reply_to_message_id]
            second.append(grid.nodes[2].answer(asked))
        elif (part, round, at) == (2, 2, stage):
            kept.append(message)
        return message

    kept: list = []
    grid = MaskedGrid(masked_nodes(masked, tmp_path / "fed"), carry)
    real = run(masked, grid)
    line = real.rounds()[1]
    assert len(second) == 1
    assert bytes_of(second[0]) == b""
    expected = "same id" if stage is Stage.ADVERTISE else "no such round" if stage is Stage.UNMASK else "next step was"
    assert expected in failure_of(second[0].content)
    assert line.updated
    assert is_exact(masked, real, tmp_path / "simulation")
    gone = stage in (Stage.ADVERTISE, Stage.SHARE)
    assert line.used == set(range(CLIENTS)) - ({2} if gone else set())


def test_a_round_id_is_answered_once(tmp_path, masked, monkeypatch):
    """A server that dies and repeats a round under its old id gets nothing, though no input was sent yet."""
    monkeypatch.setattr(Call, "new", lambda asked, samples: Call("ab" * 16, asked, samples))
    nodes = masked_nodes(masked, tmp_path / "fed")

    def die(part, round, stage, to_server, message):
        if stage is Stage.SHARE:
            raise KeyboardInterrupt("killed")
        return message

    with pytest.raises(KeyboardInterrupt, match="killed"):
        run(masked, MaskedGrid(nodes, die))
    line = run(masked, MaskedGrid(nodes), rounds=1).rounds()[0]
    assert line.discarded == "0 " + FEW.format("advertised keys")
    assert set(line.refused.values()) == {"advertise: this node has answered in a round with the same id"}


def test_nobody_gets_two_sums_of_one_upload(tmp_path, masked, monkeypatch):
    """The server learned the sum, died before the round counted, and asks again with another id."""
    nodes = masked_nodes(masked, tmp_path / "fed")
    close = Round.close
    killed: list[set[int]] = []

    def kill_once(self, *words):
        if self.number == 2 and not killed:
            killed.append(self.sum.clients)
            raise KeyboardInterrupt("killed")
        return close(self, *words)

    monkeypatch.setattr(Round, "close", kill_once)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        run(masked, MaskedGrid(nodes))
    assert killed == [set(range(CLIENTS))]
    grid = MaskedGrid(nodes)
    real = run(masked, grid)
    line = real.rounds()[1]
    assert line.discarded == "0 " + FEW.format("advertised keys")
    assert all("two sums of it would tell it apart" in reason for reason in line.refused.values())
    assert [stage for _, round, stage, data in grid.said if round == 2 and data] == []
    assert real.rounds()[2].updated
    assert is_exact(masked, real, tmp_path / "simulation")


def test_two_orders_at_once_give_one_sum(tmp_path, masked):
    """Another order for this round, with another id, came to its masks first: this one gets nothing."""

    def carry(part, round, stage, to_server, message):
        if (part, round, stage, to_server) == (2, 2, Stage.MASK, False):
            state = tmp_path / "fed/node-2/state"
            (file,) = state.rglob("session-*")
            assert Sessions(state, "", 2).mark(Session.from_bytes(file.read_bytes()).summed)
        return message

    real, grid = federated(masked, tmp_path, carry)
    line = real.rounds()[1]
    assert "two sums of it would tell it apart" in line.refused[2]
    assert [data for part, round, stage, data in grid.said if (part, round, stage) == (2, 2, Stage.MASK)] == [b""]
    assert line.used == {0, 1, 3}
    assert is_exact(masked, real, tmp_path / "simulation")


def test_a_run_that_is_repeated_elsewhere_gets_no_second_sum_of_its_first_round(tmp_path, masked):
    """Same settings, same first weights: the uploads would be the same, too. Later rounds start from other weights."""
    nodes = masked_nodes(masked, tmp_path / "fed")
    run(masked, MaskedGrid(nodes))
    again = run(masked, MaskedGrid(nodes), out=str(tmp_path / "again"))
    first, second, third = again.rounds()
    assert all("two sums of it would tell it apart" in reason for reason in first.refused.values())
    assert [first.updated, second.updated, third.updated] == [False, True, True]


def test_a_server_that_died_before_any_input_was_sent_repeats_its_round(tmp_path, masked, monkeypatch):
    nodes = masked_nodes(masked, tmp_path / "fed")

    def die(part, round, stage, to_server, message):
        if (part, round, stage) == (0, 2, Stage.MASK):
            raise KeyboardInterrupt("killed")
        return message

    with pytest.raises(KeyboardInterrupt, match="killed"):
        run(masked, MaskedGrid(nodes, die))
    ids = {message.name for message in secrets_of(tmp_path)}
    assert len(ids) == 1
    real = run(masked, MaskedGrid(nodes))
    assert [line.updated for line in real.rounds()] == [True] * 3
    assert same_server(real, simulated(masked, tmp_path / "simulation"))
    assert secrets_of(tmp_path) == []


def test_secrets_are_their_owners_alone(tmp_path, masked):
    modes: Counter[int] = Counter()

    def look(part, round, stage, to_server, message):
        modes.update(stat.S_IMODE(path.stat().st_mode) for path in secrets_of(tmp_path))
        return message

    federated(masked, tmp_path, look)
    assert modes.keys() == {0o600}
    assert secrets_of(tmp_path) == []


@pytest.mark.parametrize("shift", [1 << 62, 10**12])
def test_a_sum_that_cannot_be_right_is_discarded(tmp_path, masked, shift):
    """A dishonest node sends what no honest one would: who it was does not show, but that it happened."""

    def carry(part, round, stage, to_server, message):
        if (part, round, stage, to_server) == (2, 2, Stage.MASK, False):
            (file,) = (tmp_path / "fed" / "node-2").rglob("session-*")
            session = Session.from_bytes(file.read_bytes())
            vector = session.vector.copy()
            vector[-1] += np.uint64(shift)  # what the client weighs
            file.write_bytes(replace(session, vector=vector).to_bytes())
        return message

    masked["algorithm"] = "fedavg"
    real, _ = federated(masked, tmp_path, carry)
    line = real.rounds()[1]
    assert "samples is beyond" in line.discarded
    assert (line.updated, line.masked["unmask"]) == (False, CLIENTS)
    assert [line.updated for line in real.rounds()] == [True, False, True]
    assert is_exact(masked, real, tmp_path / "simulation")


def test_what_leaves_a_node_looks_random(tmp_path, masked):
    """All bytes of the masked inputs are about equally frequent, and no two inputs of a client are alike."""
    masked["algorithm"] = "fedavg"
    _, grid = federated(masked, tmp_path, rounds=6)
    inputs = [MaskedInput.from_bytes(data).vector for _, _, stage, data in grid.said if stage is Stage.MASK]
    assert len(inputs) == 6 * CLIENTS
    frequencies = np.bincount(np.frombuffer(b"".join(v.tobytes() for v in inputs), np.uint8), minlength=256)
    expected = frequencies.sum() / 256
    chi_square = float(((frequencies - expected) ** 2 / expected).sum())
    assert expected > 5
    assert chi_square < 255 + 6 * (2 * 255) ** 0.5
    assert len({bytes(v) for v in inputs}) == len(inputs)
