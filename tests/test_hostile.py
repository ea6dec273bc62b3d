"""Whatever one member sends, when and how: its update is left out, the round closes in time, the others' count."""

# ruff: noqa: F811

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from hypothesis import given
from hypothesis import strategies as st

from conftest import lines, same_bits
from fakegrid import (  # noqa: F401
    CONFIG,
    FakeGrid,
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
from rebafl.algorithms.aggregate import Upload
from rebafl.federation.app import fetch
from rebafl.federation.app.census import Census
from rebafl.federation.app.client_app import app as client_app
from rebafl.federation.app.federate import federate
from rebafl.federation.app.members import QUESTIONS, Claimed
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.peers import standing_out
from rebafl.federation.app.records import LONGEST, from_arrays, shown, to_arrays
from rebafl.runs.record import Record
from rebafl.runs.rounds import Checks

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\nWARNING"


# --- lies in a reply's content: each changes it in place


def put(group, name, array):
    def change(content):
        content[group][name] = array

    return change


def counts(*numbers, dtype=np.int64):
    return put("counts", "counts", Array(np.array(numbers, dtype)))


def note(**facts):
    def change(content):
        content["note"] = ConfigRecord({**content["note"], **facts})

    return change


def without(name):
    return lambda content: content.pop(name)


def add(name, record):
    def change(content):
        content[name] = record

    return change


def every(group, act):
    """All tensors of a group, changed."""

    def change(content):
        content[group] = to_arrays({name: act(tensor) for name, tensor in from_arrays(content[group]).items()})

    return change


def failure(text):
    return add("note", ConfigRecord({"failure": text}))


def headed(text: str, body: bytes = b"\0" * 16) -> Array:
    """Bytes with a header of one's own for four float32."""
    head = text.encode().ljust(118) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body
    return Array("float32", (4,), "numpy.ndarray", data)


def bias(array):
    return put("change", "head.bias", array)


def renamed(content):
    content["change"] = ArrayRecord({f"{name}_": array for name, array in content["change"].items()})


GOOD = Array(np.zeros(4, np.float32))
LARGE = Array(np.zeros(2**20, np.float32))
OVERFLOW = [2**62, 2**62, 2**62, 2**62 + 100]  # 100, as a sum of int64
CONTENT = {
    "another client's number": (note(client=1), "claims to be of client 1"),
    "another round": (note(round=1), "is of round 1"),
    "a number that is a text": (note(client="two"), "'two'"),
    "a number that is a fraction": (note(client=2.0), "2.0"),
    "a number that is a truth": (note(round=True), "True"),
    "a negative number": (note(client=-2), "-2"),
    "a number beyond 64 bits": (note(round=2**64), "not a whole number"),
    "a truth that is a number": (note(fresh=1), "not true or false"),
    "a list for a number": (note(client=[2, 2]), "[2, 2]"),
    "no note": (without("note"), "no note"),
    "an empty note": (add("note", ConfigRecord({})), "client in the note is None"),
    "a note of arrays": (add("note", ArrayRecord({})), "no note"),
    "a note of metrics": (add("note", MetricRecord({"client": 2})), "no note"),
    "no counts": (without("counts"), "no class counts"),
    "counts that are no arrays": (add("counts", ConfigRecord({})), "no record of arrays"),
    "counts twice": (put("counts", "again", GOOD), "no class counts"),
    "too many samples": (counts(9999, 0, 0, 0), "impossible class counts"),
    "ten times its samples": (counts(100, 100, 0, 0), "impossible class counts"),
    "no samples": (counts(0, 0, 0, 0), "impossible class counts"),
    "negative counts": (counts(-1, 20, 0, 0), "impossible class counts"),
    "counts that overflow": (counts(*OVERFLOW), "impossible class counts"),
    "fractions for counts": (counts(10, 10, 0, 0, dtype=np.float64), "counts"),
    "counts of another width": (counts(10, 10, 0, 0, dtype=np.int32), "counts"),
    "counts of too many classes": (counts(10, 10, 0, 0, 0), "impossible class counts"),
    "no counts at all": (counts(), "impossible class counts"),
    "no weights": (without("change"), "missing or unknown"),
    "empty weights": (add("change", ArrayRecord({})), "missing or unknown"),
    "NaN": (every("change", lambda each: each * math.nan), "NaN"),
    "infinity": (every("change", lambda each: each + math.inf), "NaN or infinity"),
    "huge weights": (every("change", lambda each: each * 0 + 1e30), "more than 1e+06"),
    "far away": (every("change", lambda each: 1000 * each), "more than 50"),
    "another shape": (bias(Array(np.zeros(3, np.float32))), "head.bias is torch.float32 (3,)"),
    "no shape": (bias(Array(np.zeros((), np.float32))), "head.bias is torch.float32 ()"),
    "another type": (bias(Array(np.zeros(4))), "torch.float64"),
    "half a type": (bias(Array(np.zeros(4, np.float16))), "torch.float16"),
    "complex numbers": (bias(Array(np.zeros(4, np.complex64))), "not used here"),
    "texts": (bias(Array(np.array(["a"] * 4))), "not used here"),
    "big-endian": (bias(Array(np.zeros(4, ">f4"))), "not used here"),
    "a stranger's weights": (put("change", "trojan", GOOD), "unknown trojan"),
    "renamed weights": (renamed, "and 5 more"),
    "a pickle": (bias(Array("float32", (4,), "cloudpickle", b"cos\nsystem")), "cloudpickle"),
    "a pickle in numpy's clothes": (bias(headed("{'descr':'|O','fortran_order':False,'shape':(4,)}")), "not used here"),
    "half an array": (bias(Array("float32", (4,), "numpy.ndarray", GOOD.data[:-3])), "bytes for shape"),
    "an array and more": (bias(Array("float32", (4,), "numpy.ndarray", GOOD.data + b"x")), "bytes for shape"),
    "a header that never ends": (bias(headed("[" * 110)), "cannot be decoded"),
    "a header that is a program": (bias(headed("__import__('os').abort()")), "cannot be decoded"),
    "two shapes": (bias(headed("{'descr':'<f4','fortran_order':False,'shape':(2,2)}")), "two things"),
    "no shared values": (without("shared"), "missing or unknown"),
    "NaN in shared values": (every("shared", lambda each: each * math.nan), "shared values: hidden"),
    "huge shared values": (every("shared", lambda each: each * 0 + 3e38), "shared values"),
    "shared values out of proportion": (every("shared", lambda each: 1000 * each), "times the median client's"),
    "an unknown record": (add("extra", ArrayRecord({})), "unknown record 'extra'"),
    "an unknown record of metrics": (add("loss", MetricRecord({"loss": 0.1})), "unknown record 'loss'"),
    "much too large": (bias(LARGE), "more than"),
    "one array under many names": (add("change", ArrayRecord({str(n): LARGE for n in range(9)})), "more than"),
    "an evil name": (put("change", ESCAPE, GOOD), "no name of a tensor"),
    "a name without end": (put("change", "x" * 10_000, GOOD), "no name of a tensor"),
    "a failure with escape sequences": (failure(ESCAPE), "\\x1b]0;owned\\x07\\x1b[2J\\u202eevil WARNING"),
    "a failure without end": (failure("x" * 10**6), "xxx"),
    "a failure that is no text": (failure(7), "not a text"),
}


# --- lies in a reply's metadata: each makes another reply


def metadata(**facts):
    def change(reply):
        for name, value in facts.items():
            reply.metadata.__dict__[f"_{name}"] = value
        return reply

    return change


def crashed(code, reason):
    return lambda reply: Message(Error(code=code, reason=reason), reply_to=asked_by(reply))


METADATA = {
    "a life of NaN": (metadata(ttl=math.nan), "lasts nan s"),
    "a life without end": (metadata(ttl=math.inf), "lasts inf s"),
    "a life before its birth": (metadata(ttl=-1.0), "lasts -1.0 s"),
    "made at NaN": (metadata(created_at=math.nan), "of time nan"),
    "made at the end of time": (metadata(created_at=math.inf), "of time inf"),
    "from another node": (metadata(src_node_id=7), "came from another node"),
    "to another message": (metadata(reply_to_message_id="0" * 64), "answers another message"),
    "of another type": (metadata(message_type="query"), "of type 'query'"),
    "of an evil type": (metadata(message_type=ESCAPE), r"of type '\x1b]0;owned"),
    "of another group": (metadata(group_id="1"), "group '1'"),
    "a crash": (crashed(2, "boom"), "Flower's error 2: boom"),
    "a crash with escape sequences": (crashed(0, ESCAPE), "evil WARNING"),
    "an unknown kind of crash": (crashed(10**6, ""), "error 1000000"),
    "a pretended absence": (crashed(5, ESCAPE), "the node or its reply is gone"),
    "what Flower cannot read": (lambda reply: KeyError(ESCAPE), "cannot be read (KeyError"),
    "what Flower cannot decode": (lambda reply: UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "cannot be read"),
    "what Flower recurses in": (lambda reply: RecursionError("deep"), "cannot be read (RecursionError"),
}


def within(act):
    """A lie about the content as one about the reply."""

    def change(reply):
        act(reply.content)
        return reply

    return change


LIES = {**{name: (within(act), reason) for name, (act, reason) in CONTENT.items()}, **METADATA}
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


@given(st.text())
def test_no_text_of_a_node_acts_on_a_terminal(text):
    assert shown(text).isprintable()
    assert len(shown(text)) <= LONGEST


def test_what_a_node_says_reaches_the_failure_note_and_the_log_harmlessly(config, caplog):
    caplog.set_level("INFO", "flwr")
    grid = FakeGrid(nodes_of(config), lambda part, round, reply: crashed(0, ESCAPE)(reply))
    with pytest.raises(UserError, match="2 rounds in a row"):
        run(config, grid)
    text = (Path(config["out"]) / "failure.txt").read_text()
    assert text.strip().isprintable()
    assert "evil" in text
    assert all(record.getMessage().isprintable() for record in caplog.records)


# --- hold-ups


class Stuck(FakeGrid):
    """Every look at client 2's replies hangs until the end of round 3 or of the test."""

    free = threading.Event()

    def pull_messages(self, ids):
        reply = self.replies.get(ids[0])
        if reply and reply.metadata.group_id == "2" and reply.content["note"]["client"] == 2:
            self.free.wait(60)
        return super().pull_messages(ids)


def test_a_look_that_hangs_costs_that_client_only_and_its_result_comes_to_nothing(config, tmp_path):
    """Nor does its thread keep the process alive."""
    Stuck.free.clear()
    before = set(threading.enumerate())

    def conduct(part, round, reply):
        if round == 3:
            Stuck.free.set()
        return reply

    began = time.monotonic()
    real = run(config, Stuck(nodes_of(config), conduct), algorithm="scaffold")
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    assert time.monotonic() - began < 30
    rows = lines(real.path)
    assert [row.get("missing", {}).keys() for row in rows] == [set(), {"2"}, set()]
    assert rows[1]["refused"] == {}
    expected = simulated({**config, "algorithm": "scaffold"}, tmp_path / "simulation", **absent(tmp_path, (2, 2)))
    assert same_server(real, expected)


class Failing(FakeGrid):
    """Some looks at client 2's replies fail."""

    def __init__(self, nodes, errors):
        super().__init__(nodes)
        self.errors = errors

    def pull_messages(self, ids):
        reply = self.replies.get(ids[0])
        if self.errors and reply and reply.metadata.message_type == "train" and reply.content["note"]["client"] == 2:
            raise self.errors.pop(0)
        return super().pull_messages(ids)


def status(code):
    request = httpx.Request("POST", "http://127.0.0.1")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(code, request=request))


def test_a_reply_that_the_superlink_fails_at_costs_that_client_only(config):
    row = lines(run(config, Failing(nodes_of(config), [status(500)] * 1000), rounds=1, deadline=9.0).path)[0]
    assert row["refused"] == {"2": "the SuperLink fails at the reply (HTTP status 500)"}


@pytest.mark.parametrize("error", [status(500), httpx.ReadTimeout(""), OSError("reset")])
def test_one_failure_is_no_failure(config, error):
    row = lines(run(config, Failing(nodes_of(config), [error]), rounds=1, deadline=5.0).path)[0]
    assert (row["refused"], row.get("missing")) == ({}, None)


def test_a_superlink_that_is_gone_ends_the_run_and_not_the_round(config):
    class Gone(FakeGrid):
        def get_nodes(self):
            if any(round == 2 for _, round, _ in self.asked):
                raise httpx.ConnectError("refused")
            return super().get_nodes()

        def pull_messages(self, ids):
            self.get_nodes()
            return super().pull_messages(ids)

    with pytest.raises(httpx.ConnectError):
        run(config, Gone(nodes_of(config)))
    assert len(Record(Path(config["out"])).rounds()) == 1


def test_a_node_that_does_not_say_which_part_it_holds_is_not_asked_for_ever(tmp_path):
    asked = []
    silent = type("Silent", (), {"node_id": 1, "public_key": b"key"})
    table = Claimed(tmp_path / "members.json", 4, lambda nodes: asked.append(nodes) or {})
    for _ in range(9):
        assert table.clients([silent]) == {}
    assert len(asked) == QUESTIONS


# --- what would spoil the run for all


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
    census = Census(tmp_path / "counts.json", "fixed", split=None)
    assert census.objection(Upload(1, {}, torch.tensor([3, 4]))) is None
    census.settle({1: [1, 2]})
    assert "this client holds [1, 2]" in census.objection(Upload(1, {}, torch.tensor([3, 4])))
    census.settle({1: [3, 4], 2: [5, 6]})
    assert Census(tmp_path / "counts.json", "fixed", split=None).first == {1: [1, 2], 2: [5, 6]}


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


@pytest.mark.parametrize(
    ("loss", "before", "usable"),
    [
        (999.0, 1.0, True),
        (1001.0, 1.0, False),
        (1001.0, 2000.0, True),  # it gets better
        (1001.0, math.nan, False),
        (math.nan, math.nan, False),
        (math.inf, math.inf, False),
    ],
)
def test_a_round_that_ends_with_such_a_loss_is_not_taken(loss, before, usable):
    assert (Checks(1, loss=1e3).unusable(loss, lambda: before) is None) == usable


def test_without_a_bound_a_loss_must_only_be_finite():
    assert Checks(1).unusable(1e30, lambda: 1.0) is None
    assert "would be nan" in Checks(1).unusable(math.nan, lambda: 1.0)


def upload_of(client, shared, change=1.0):
    return Upload(client, {"w": torch.tensor([change])}, torch.tensor([1]), {"s": torch.tensor([shared])})


@pytest.mark.parametrize(
    ("shared", "refused"),
    [
        ((1.0, 2.0, 99.0), []),
        ((1.0, 1.0, 101.0), [2]),
        ((1.0, 101.0), []),  # which of the two?
        ((0.0, 0.0, 1.0), []),
        ((1.0, math.nan, math.inf), []),  # named elsewhere
        ((1.0, 1.0, 1.0, math.inf, 1e30), [3, 4]),
    ],
)
def test_shared_values_are_held_against_the_median(shared, refused):
    uploads = [upload_of(client, each) for client, each in enumerate(shared)]
    assert list(standing_out(uploads, wary=False)) == refused


def test_the_change_is_held_against_the_median_only_after_a_discarded_round():
    uploads = [upload_of(0, 1.0), upload_of(1, 1.0), upload_of(2, 1.0, change=11.0)]
    assert standing_out(uploads, wary=False) == {}
    assert list(standing_out(uploads, wary=True)) == [2]


# --- as the SuperLink hands replies over: a tree of objects, then one object after the other


def bomb(reply):
    """A small upload that names one chunk a thousand times."""
    chunk = ArrayChunk(memoryview(b"x" * 2**16))
    reply.content["change"] = ArrayRecord({"bomb": GOOD})
    reply.content["change"]["bomb"].__dict__["_chunks"] = [(chunk.object_id, chunk)] * 1000


def swarm(reply):
    """More objects than any reply has."""
    reply.content["change"] = ArrayRecord({str(n): Array(np.array([n])) for n in range(1000)})


def flood(reply):
    reply.content["change"] = ArrayRecord({"flood": Array(np.arange(2**19))})


class Link:
    """What a grid's client sees of a SuperLink with one reply, of which one more object is there at each look."""

    def __init__(self, reply):
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self.objects = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
        self.tree, self.announced = get_object_tree(reply), message_to_proto(reply)
        self.there, self.confirmed, self.asked = 0, [], 0
        self._runtime_client, self.node, self.run = self, None, SimpleNamespace(run_id=1)

    def PullMessages(self, request):
        found = [self.announced] if self.announced.metadata.reply_to_message_id in request.message_ids else []
        return SimpleNamespace(messages_list=found, message_object_trees=[self.tree for _ in found])

    def PullObject(self, request):
        self.asked += 1
        place = list(self.objects).index(request.object_id) if request.object_id in self.objects else -1
        ready = 0 <= place < self.there
        content = self.objects[request.object_id] if ready else b""
        return SimpleNamespace(object_found=place >= 0, object_available=ready, object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)


@pytest.fixture
def reply(config):
    node = nodes_of(config)[2]
    grid = FakeGrid([node])
    federate_once = {**config, "rounds": 1, "patience": 1}
    caught = []
    grid.conduct = lambda part, round, reply: caught.append(reply) or reply
    run(federate_once, grid)
    caught[0].metadata.__dict__["_reply_to_message_id"] = "1" * 64
    return caught[0]


def parcel(link, **limits):
    return fetch.InParts(link, 2, "1" * 64, fetch.Limit(**limits))


def test_a_look_takes_what_is_there_and_waits_for_nothing(reply):
    link = Link(reply)
    looked = parcel(link)
    for there in range(len(link.objects)):
        link.there, before = there, link.asked
        assert looked.look() is None
        assert link.asked - before <= 2  # the one that has come, and the next, which has not
    assert link.confirmed == []
    link.there += 1
    found = looked.look()
    assert found.metadata.reply_to_message_id == "1" * 64
    assert same_bits(from_arrays(reply.content["change"]), from_arrays(found.content["change"]))
    assert link.confirmed == [link.announced.metadata.message_id]


@pytest.mark.parametrize(
    ("act", "reason", "fetched"),
    [
        (bomb, "unpacks to 65", 20),
        (swarm, "announces more than 1000 objects", 0),
        (flood, "holds more than 1048576 bytes", 20),
    ],
)
def test_a_reply_that_would_fill_up_the_server_is_refused_before_it_does(reply, act, reason, fetched):
    act(reply)
    link = Link(reply)
    link.there = len(link.objects)
    with pytest.raises(fetch.Refused, match=reason):
        parcel(link).look()
    assert link.asked <= fetched
    assert link.confirmed or not fetched


def test_a_reply_whose_objects_vanish_is_refused(reply):
    link = Link(reply)
    looked = parcel(link)
    assert looked.look() is None
    link.objects.clear()
    with pytest.raises(fetch.Refused, match="never uploaded completely"):
        looked.look()


def test_a_look_at_a_closed_round_ends(reply):
    link = Link(reply)
    looked = parcel(link)
    looked.dropped, link.there = True, len(link.objects)
    assert looked.look() is None
    assert link.asked == 0


# --- on a real SuperLink


class Member:
    """A node on the wire that trains honestly and then delivers as it likes."""

    def __init__(self, part, config, act=lambda reply: None, parts=math.inf, pause=0.0):
        self.act, self.parts, self.pause = act, parts, pause
        node = {"partition-id": part}
        self.context = Context(run_id=1, node_id=1, node_config=node, state=RecordDict(), run_config=config)

    def __call__(self, line, message):
        reply = client_app(message, self.context)
        if message.metadata.message_type == "train":
            self.act(reply)
            sent = iter(range(10**9))
            pace = lambda: time.sleep(self.pause) or next(sent) < self.parts  # noqa: E731
            threading.Thread(target=line.deliver, args=(reply, pace), daemon=True).start()
        else:
            line.deliver(reply)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gitwildmatch:DeprecationWarning")  # of what Flower packs its apps with
def test_on_a_real_superlink_no_member_holds_up_a_round(tmp_path, config, monkeypatch):
    from wire import begin_run, nodes, superlink

    monkeypatch.setattr(fetch, "POLL", 1.0)
    deadline = 25.0
    config |= {"deadline": deadline, "wait": 60.0, "min-nodes": 6, "partition.clients": 6, "rounds": 1}
    members = [
        Member(0, config),
        Member(1, config),
        Member(2, config, metadata(ttl=math.nan)),  # the SuperLink answers 500
        Member(3, config, pause=4.0),  # Flower would wait for all parts
        Member(4, config, parts=2),  # dies in mid-upload: Flower would wait for three minutes
        Member(5, config, swarm),  # would block the SuperLink's database
    ]
    with superlink(tmp_path) as address:
        grid = begin_run(address)
        with nodes(address, members):
            real = federate(grid, *read_run_config(config))
        grid.close()
    row = lines(real.path)[0]
    assert row["active"] == list(range(6))
    assert {**row["refused"], **row["missing"]}.keys() == {"2", "3", "4", "5"}
    assert row["missing"].keys() >= {"3", "4", "5"}
    assert real.rounds()[0]["seconds"] < 2 * deadline  # the nodes' introduction included
    away = [(client, 1) for client in range(2, 6)]
    expected = simulated(config, tmp_path / "simulation", **absent(tmp_path, *away))
    assert same_server(real, expected)
