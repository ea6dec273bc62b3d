"""Masked rounds of a federation: the simulator's bits; whatever is lost or changed, an exact sum or a clean abort."""

from __future__ import annotations

import stat
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebafl import UserError
from rebafl.algorithms import KINDS
from rebafl.federation.app.masking import Call
from rebafl.federation.app.node.sessions import Session
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.records import failure_of
from rebafl.federation.app.server.federate import federate
from rebafl.federation.app.server.masked_round import CLOSES
from rebafl.runs.record import Record
from rebafl.runs.rounds import Round
from rebafl.secagg.messages import MaskedInput, Stage, Survivors, UnmaskRequest
from support.grid import CLIENTS, FakeGrid, run, same_server, simulated
from support.masked import MaskedGrid, bytes_of, flipped, is_exact, lost_from, masked_nodes, put_bytes, whole
from support.secagg import STAGES
from support.toy import lines

WORDS = defaultdict(str, {"fedavg-ft": " algorithm.samples=3"})
PROTECTED = {
    "few": " protect.min_count=11",
    "rounded": " protect.counts=rounded",
    "holders": " protect.min_holders=3",
    "clipped": " protect.clip=0.5 protect.update_clip=0.05",
}
PROTECTED["all"] = PROTECTED["clipped"] + " protect.counts=withheld protect.min_count=3 protect.min_holders=2"
FEW = "clients {}; at least 3 are needed"


@pytest.fixture
def masked(config) -> dict:
    config["settings"] += " protect.secagg=true"
    return config


def federated(config, tmp_path, carry=whole, **changes) -> tuple[Record, MaskedGrid]:
    grid = MaskedGrid(masked_nodes(config, tmp_path / "fed"), carry)
    return run(config, grid, **changes), grid


def without_stages(path: Path) -> list[dict]:
    return [{key: value for key, value in row.items() if key != "masked"} for row in lines(path)]


def secrets_of(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "fed").rglob("session-*"))


@pytest.mark.parametrize("algorithm", KINDS)
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
