"""The federation gives the simulator's bits; what is late, lost, malformed or a lie costs one update, not the run."""

# ruff: noqa: F811

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from conftest import lines, make_toy
from fakegrid import (  # noqa: F401
    CLIENTS,
    FakeGrid,
    Node,
    absent,
    asked_by,
    config,
    in_a_task,
    nodes_of,
    run,
    same_server,
    simulated,
    toy_file,
)
from rebafl import UserError
from rebafl.algorithms import KINDS
from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.interface import Sent
from rebafl.base.config import read_toml
from rebafl.data.arrays import NAMES
from rebafl.federation.app.federate import federate
from rebafl.federation.app.members import Bound, Claimed, fingerprint, read_members
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.records import Malformed, Order, Reply, from_arrays, read_order, read_reply, to_arrays
from rebafl.runs.environment import machine
from rebafl.runs.experiment import split_data
from rebafl.runs.record import Record

STATEFUL = ("scaffold", "feddyn", "moon")
WORDS = defaultdict(str, {"fedavg-ft": " algorithm.samples=3"})


# --- the same bits


@pytest.mark.parametrize("algorithm", KINDS)
def test_every_algorithm_gives_the_simulators_bits(tmp_path, config, algorithm):
    """With some clients away in some rounds, so that state has to wait for them."""
    config["algorithm"] = algorithm
    config["settings"] += WORDS[algorithm]
    config["participation"] = "bernoulli"
    real = run(config)
    expected = simulated(config, tmp_path / "simulation")
    assert same_server(real, expected)
    assert lines(real.path) == lines(expected.path)


def test_own_data_give_the_bits_of_the_partition_they_are(tmp_path, config, toy_file):
    """Each node has a file with its samples only, classes numbered in another order but named."""
    expected = run(config)
    settings, _ = read_run_config(config)
    data, split, _ = split_data(settings)
    nodes = sorted((Node(number, config, {}) for number in range(CLIENTS)), key=fingerprint)  # as they are numbered
    for client, node in enumerate(nodes):
        index = split.indices(client)
        part = {"x_train": data.x_train[index].numpy(), "x_test": data.x_test.numpy()}
        labels = {"y_train": 3 - data.y_train[index].numpy(), "y_test": 3 - data.y_test.numpy()}
        path = tmp_path / f"device-{client}.npz"
        np.savez(path, **part, **labels, classes=np.array(["3", "2", "1", "0"]))
        node.context.node_config = {"data": str(path)}
    real = run(config, FakeGrid(nodes), out=str(tmp_path / "own"))
    assert same_server(real, expected)
    assert all(line["refused"] == {} and line["active"] == [0, 1, 2, 3] for line in lines(real.path))


def test_own_data_of_an_unknown_class_or_another_shape_are_refused(tmp_path, config, toy_file):
    x, y = np.zeros((4, 6), np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "class.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=np.array(["0", "shoe"]))
    np.savez(tmp_path / "shape.npz", x_train=x[:, :5], y_train=y, x_test=x[:, :5], y_test=y)
    nodes = nodes_of(config)
    nodes[1] = Node(1, config, {"data": str(tmp_path / "class.npz")})
    nodes[2] = Node(2, config, {"data": str(tmp_path / "shape.npz")})
    nodes[3] = Node(3, config, {})
    refused = lines(run(config, FakeGrid(nodes), rounds=1).path)[0]["refused"]
    assert len(refused) == 3
    assert any("'shoe'" in reason for reason in refused.values())
    assert any("shape (5,)" in reason for reason in refused.values())
    assert any("partition-id=NUMBER" in reason for reason in refused.values())


def test_a_node_with_other_data_under_the_same_name_is_refused(tmp_path, config):
    other = tmp_path / "other.npz"
    np.savez(other, **{name: getattr(make_toy(each=49), name).numpy() for name in NAMES})
    nodes = nodes_of(config)
    grid = FakeGrid(nodes)
    settings, options = read_run_config({**config, "rounds": 1})
    nodes[0].context.run_config = {**config, "dataset": str(other)}
    federate(grid, settings, options)
    refused = lines(Path(config["out"]))[0]["refused"]
    assert refused.keys() == {"0"}
    assert "other data than on the server" in refused["0"]


# --- deadlines and losses


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
    assert "restarted" not in lines(real.path)[2]


def test_rounds_in_vain_leave_the_model_as_it_is_and_end_the_run(config):
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
    assert run(config, FakeGrid(nodes_of(config)[:3]), **{"min-nodes": 3}).round == 3  # and the run goes on
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


# --- restarts


class Killed(BaseException):
    pass


@pytest.mark.parametrize("algorithm", ["rebafl", *STATEFUL])
def test_killed_in_mid_round_the_server_goes_on_from_the_last_finished_one(tmp_path, config, algorithm):
    """With new node ids, as after a restart of the SuperLink, and states in the nodes' folders."""
    config["algorithm"] = algorithm

    def kill(part, round, reply):
        if (part, round) == (2, 3):  # two clients have trained already, and are ahead
            raise Killed
        return reply

    with pytest.raises(Killed):
        run(config, FakeGrid(nodes_of(config, tmp_path / "kept"), kill))
    assert Record(Path(config["out"])).saved_server() is not None
    real = run(config, FakeGrid(nodes_of(config, tmp_path / "kept")))
    assert same_server(real, simulated(config, tmp_path / "simulation"))
    kept = sorted(path.name.split("-")[1] for path in (tmp_path / "kept").rglob("*/client-1/*"))
    confirmed_and_pending = ["2", "3"]
    assert kept == (confirmed_and_pending if algorithm in STATEFUL else [])


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


def test_a_full_disk_ends_the_run_in_one_sentence_and_loses_nothing(tmp_path, config, monkeypatch):
    sync, full = os.fsync, []

    def fsync(handle):
        if full:
            raise OSError(errno.ENOSPC, "No space left on client")
        sync(handle)

    def fill(part, round, reply):
        full[:] = [True] if round == 2 else []
        return reply

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on client\)") as caught:
        run(config, FakeGrid(nodes_of(config), fill))
    assert "\n" not in str(caught.value)
    full.clear()
    assert len(Record(Path(config["out"])).rounds()) == 1
    assert same_server(run(config), simulated(config, tmp_path / "simulation"))


def test_another_kind_of_bits_needs_the_word_of_the_run_config(config, monkeypatch):
    facts = machine()
    monkeypatch.setattr("rebafl.runs.rounds.machine", lambda: facts | {"bits": "one"})
    run(config, rounds=1)
    monkeypatch.setattr("rebafl.runs.rounds.machine", lambda: facts | {"bits": "other"})
    with pytest.raises(UserError, match="accept-changes=true"):
        run(config)
    assert len(lines(run(config, **{"accept-changes": True}).path)) == 3
    environment = json.loads((Path(config["out"]) / "environment.json").read_text())
    assert environment["went_on_with"] == [{"after_round": 1, "bits": "other"}]


def test_a_simulation_and_a_federation_do_not_share_a_directory(config):
    record = simulated({**config, "rounds": 1}, Path(config["out"]))
    with pytest.raises(UserError, match="holds the run of a simulation"):
        run(config)
    run({**config, "out": f"{record.path}-2"})
    with pytest.raises(UserError, match="holds the run of a federation"):
        simulated({**config, "rounds": 5}, Path(f"{record.path}-2"))


# --- who is who


def make_key():
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem, key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


SOME_KEY = make_key()[1]


def connected(node_id: int, public_key: bytes):
    return SimpleNamespace(node_id=node_id, public_key=public_key)


def test_with_a_members_file_a_number_belongs_to_a_key_and_strangers_are_never_asked(tmp_path, config):
    keys = [make_key() for _ in range(3)]
    members = tmp_path / "members.toml"
    members.write_text(f'[clients]\n3 = "{keys[0][1]} node"\n1 = "{keys[1][1]}"\n')
    bound = Bound(read_members(members, CLIENTS))
    nodes = [connected(11, keys[0][0]), connected(12, keys[1][0]), connected(13, keys[2][0])]
    assert bound.clients(nodes) == {3: 11, 1: 12}
    assert bound.clients([connected(99, keys[0][0])]) == {3: 99}  # registered anew, the same key

    config["members"] = str(members)
    real_nodes = nodes_of(config)[:3]
    names = {}
    for node, (pem, _) in zip(real_nodes, keys, strict=True):
        names[node.node_id] = node.public_key
        node.public_key = pem

    class Keyed(FakeGrid):
        def _deliver(self, message):
            self.asked.append(
                (message.metadata.dst_node_id, int(message.metadata.group_id), message.metadata.message_type)
            )
            node = next(n for n in self.nodes if n.node_id == message.metadata.dst_node_id)
            self.replies[message.metadata.message_id] = node.answer(message)

    grid = Keyed(real_nodes)
    rows = lines(run(config, grid).path)
    assert [row["active"] for row in rows] == [[1, 3]] * 3  # though their partition-ids are 0 and 1
    assert {node for node, _, _ in grid.asked} == {node.node_id for node in real_nodes[:2]}
    assert {kind for _, _, kind in grid.asked} == {"train"}  # nobody is asked who it is


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "table"),
        ('[clients]\nfour = "x"', "is no client"),
        (f'[clients]\n4 = "{SOME_KEY}"', "no client 4"),
        ('[clients]\n0 = "ssh-nothing AAAA"', "cannot be read"),
        ("[clients]\n0 = 1", "cannot be read"),
    ],
)
def test_a_wrong_members_file_is_one_sentence(tmp_path, text, reason):
    path = tmp_path / "members.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=reason):
        read_members(path, CLIENTS)


def test_one_key_cannot_be_two_clients(tmp_path):
    _, line = make_key()
    (tmp_path / "members.toml").write_text(f'[clients]\n0 = "{line}"\n1 = "{line}"\n')
    with pytest.raises(UserError, match="same key"):
        read_members(tmp_path / "members.toml", CLIENTS)


def claims(tmp_path, said):
    return Claimed(tmp_path / "members.json", CLIENTS, lambda nodes: {node: said.get(node) for node in nodes})


def test_a_number_whose_node_is_connected_is_never_given_away(tmp_path):
    said = {1: 2, 2: 2, 3: 7, 4: None}
    first, liar, far, silent = (connected(number, f"key {number}".encode()) for number in (1, 2, 3, 4))
    table = claims(tmp_path, said)
    assert table.clients([first]) == {2: 1}
    assert table.clients([liar, far, silent, first]) == {2: 1}
    assert claims(tmp_path, said).clients([liar, first]) == {2: 1}  # nor after a restart of the server
    assert table.clients([liar]) == {2: 2}  # but once its node is gone, one that restarted may have it


def test_nodes_with_data_of_their_own_get_the_free_numbers(tmp_path):
    said = {1: -1, 2: 0, 3: -1}
    nodes = [connected(number, f"key {number}".encode()) for number in (1, 2, 3)]
    table = claims(tmp_path, said)
    found = table.clients(nodes)
    assert sorted(found) == [0, 1, 2]
    assert sorted(found.values()) == [1, 2, 3]
    assert claims(tmp_path, {}).clients(nodes) == found


def test_nodes_are_asked_once_who_they_are(config):
    grid = FakeGrid(nodes_of(config))
    run(config, grid)
    kinds = [kind for _, _, kind in grid.asked]
    assert kinds.count("query") == CLIENTS
    assert kinds.count("train") == 3 * CLIENTS


# --- the wire

FINE = st.sampled_from(["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
TENSORS = st.dictionaries(
    st.text(max_size=12).filter(str.isprintable),
    FINE.flatmap(lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, min_side=0))),
    max_size=4,
).map(lambda found: {name: torch.from_numpy(np.array(array)) for name, array in found.items()})


def alike(a, b) -> bool:
    """Bit for bit, NaN included."""
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].numpy().tobytes() == b[n].numpy().tobytes()
        for n in a
    )


@given(TENSORS, TENSORS, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62))
def test_orders_and_replies_come_through_bit_for_bit(first, second, client, round, state):
    run_name = uuid.uuid4().hex
    order = read_order(Order(run_name, client, round, state, "{}", "abc", Sent(first, second)).record())
    assert alike(order.sent.weights, first)
    assert alike(order.sent.extra, second)
    assert (order.run, order.client, order.round, order.state) == (run_name, client, round, state)
    counts = torch.tensor([3, 4])
    reply = read_reply(Reply(Upload(client, first, counts, second), round, fresh=True).record(), client, round)
    assert alike(reply.upload.change, first)
    assert alike(reply.upload.shared, second)
    assert reply.upload.counts.tolist() == [3, 4]
    assert reply.fresh


def test_memory_layouts_do_not_change_what_is_sent():
    image = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    matrix = torch.arange(6.0).reshape(2, 3).t()
    found = from_arrays(to_arrays({"image": image, "matrix": matrix}))
    assert torch.equal(found["image"], image)
    assert torch.equal(found["matrix"], matrix)


def test_no_object_of_a_reply_can_be_foreseen():
    """The SuperLink takes an object only with the parts that were announced first, by whomever."""
    upload = Upload(1, {"w": torch.zeros(3)}, torch.tensor([3, 4]), {"s": torch.zeros(2)})
    first, second = (set(get_all_nested_objects(Reply(upload, 2).record())) for _ in range(2))
    assert len(first) == 3 * 3 + 2
    assert first & second == set()
    order = Order("0" * 32, 1, 2, 0, "{}", "", Sent({"w": torch.zeros(3)}, {}))
    assert get_all_nested_objects(order.record()).keys() == get_all_nested_objects(order.record()).keys()  # sent once


@pytest.mark.parametrize("salt", ["", "0123456789abcdef" * 2])
def test_numpy_itself_can_read_what_is_sent(salt):
    array = to_arrays({"x": torch.arange(6.0).reshape(2, 3)}, salt)["x"]
    assert np.array_equal(array.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))


GOOD = Array(np.arange(4, dtype=np.float32))


def headed(text: str, body: bytes = b"\0" * 16) -> bytes:
    head = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body


@pytest.mark.parametrize(
    "array",
    [
        Array("float32", (4,), "numpy.ndarray", b""),
        Array("float32", (4,), "numpy.ndarray", b"PK\x03\x04 an archive"),
        Array("float32", (4,), "numpy.ndarray", GOOD.data[:-1]),
        Array("float32", (4,), "numpy.ndarray", GOOD.data + b"x"),
        Array("float32", (5,), "numpy.ndarray", GOOD.data),
        Array("float64", (4,), "numpy.ndarray", GOOD.data),
        Array("float32", (4,), "torch.Tensor", GOOD.data),
        Array(
            "float32",
            (10**12,),
            "numpy.ndarray",
            headed(f"{{'descr':'<f4','fortran_order':False,'shape':({10**12},)}}"),
        ),
        Array("object", (2,), "numpy.ndarray", headed("{'descr':'|O','fortran_order':False,'shape':(2,)}")),
        Array(">f4", (4,), "numpy.ndarray", headed("{'descr':'>f4','fortran_order':False,'shape':(4,)}")),
        Array("float32", (2, 2), "numpy.ndarray", headed("{'descr':'<f4','fortran_order':True,'shape':(2,2)}")),
        Array("float32", (-4,), "numpy.ndarray", headed("{'descr':'<f4','fortran_order':False,'shape':(-4,)}")),
        Array("float32", (4,), "numpy.ndarray", headed("__import__('os').abort()")),
        Array("float32", (4,), "numpy.ndarray", headed("[" * 100)),
    ],
)
def test_bytes_that_are_no_plain_array_are_malformed(array):
    with pytest.raises(Malformed):
        from_arrays(ArrayRecord({"x": array}))


@given(st.binary(max_size=200))
def test_no_bytes_whatever_do_more_than_raise_malformed(data):
    with pytest.raises(Malformed):
        from_arrays(ArrayRecord({"x": Array("float32", (4,), "numpy.ndarray", data)}))


@pytest.mark.parametrize("name", ["../../etc", "", "A" * 32, "0" * 31])
def test_a_run_cannot_name_a_folder_elsewhere(name):
    with pytest.raises(Malformed, match="no name of a run"):
        read_order(Order(name, 0, 1, 0, "{}", "", Sent({}, {})).record())


# --- settings


def test_the_apps_own_config_is_good():
    values = read_toml(Path(__file__).parents[1] / "pyproject.toml")["tool"]["flwr"]["app"]["config"]
    flat = {**{f"partition.{k}": v for k, v in values.pop("partition").items()}, **values}
    settings, options = read_run_config(flat)
    assert (settings.dataset, settings.partition.clients, settings.participation.name) == ("fashion-mini", 5, "always")
    assert options.deadline == 120.0
    dashed = {"min-nodes", "max-norm", "max-value", "max-samples", "accept-changes"}
    assert {key for key in values if "-" in key} == dashed


def test_words_win_over_the_listed_keys_and_may_change_the_kind():
    values = {"partition.clients": 5, "algorithm": "fedprox", "algorithm.mu": 0.5, "deadline": 60}
    settings, options = read_run_config({**values, "settings": "partition=iid partition.clients=3"})
    assert (settings.partition.name, settings.partition.clients) == ("iid", 3)
    assert settings.algorithm.mu == 0.5
    assert options.deadline == 60


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"deadline": 0}, "federation.deadline = 0"),
        ({"min-nodes": 2.5}, "min_nodes"),
        ({"dedline": 3}, "dedline"),
        ({"settings": "mu"}, "KEY=VALUE"),
        ({"settings": "a='"}, "KEY=VALUE"),
        ({"settings": "dropout=lost"}, "on purpose"),
        ({"algorithm": "fedsgd"}, "fedsgd"),
    ],
)
def test_wrong_run_configs_are_one_sentence(values, reason):
    with pytest.raises(UserError, match=reason):
        read_run_config(values)


# --- Flower itself


@pytest.fixture
def flower(tmp_path, monkeypatch):
    """Start Flower's programs on this machine only, with a home of their own; all are stopped afterwards."""
    for name, value in {
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(name, value)
    started = []

    def start(program: str, *words: str) -> None:
        log = (tmp_path / f"{program}-{len(started)}.log").open("w")
        started.append((subprocess.Popen([program, *words], stdout=log, stderr=log), log))

    yield start
    for process, _ in reversed(started):
        process.terminate()
    for process, log in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def free_ports(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def listening(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@pytest.mark.slow
def test_three_rounds_on_real_nodes_give_the_simulators_bits(tmp_path, flower):
    """A SuperLink and two SuperNodes as processes of their own, with `flwr run .` of this repository."""
    link, *ports = free_ports(3)
    here = ("--insecure", "--host", "127.0.0.1", "--port")
    flower("flower-superlink", *here, link, "--disable-runtime-dependency-installation")
    for part, port in enumerate(ports):
        node = ("--superlink", f"127.0.0.1:{link}", "--node-config", f"partition-id={part}")
        flower("flower-supernode", *here, port, *node)
    (tmp_path / "home").mkdir()
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    (tmp_path / "home" / "config.toml").write_text(connection)
    until = time.monotonic() + 60
    while not listening(link) and time.monotonic() < until:
        time.sleep(0.2)
    words = "training.epochs=1 partition=pathological partition.clients=2 partition.samples=200"
    config = {"dataset": "fashion-mini", "rounds": 3, "settings": words}
    changes = " ".join(f"{key}={json.dumps(value)}" for key, value in {**config, "out": str(tmp_path / "run")}.items())
    command = ["flwr", "run", str(Path(__file__).parents[1]), "--stream", "--run-config", changes]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert told.returncode == 0, told.stdout + told.stderr
    real = Record(tmp_path / "run")
    rows = lines(real.path)
    expected = simulated(config, tmp_path / "simulation")
    assert [row["active"] for row in rows] == [[0, 1]] * 3, told.stdout
    assert rows == lines(expected.path)
    assert same_server(real, expected)
