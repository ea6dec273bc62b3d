"""A reply is waiting at without waiting: what hangs, fails, vanishes or is too large costs one client's update."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from rebafl.federation.app.records import from_arrays
from rebafl.federation.app.server import fetch
from support.grid import FakeGrid, absent, nodes_of, run, same_server, simulated
from support.lies import GOOD, swarm
from support.toy import lines, same_bits


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


def bomb(reply):
    """A small upload that names one chunk a thousand times."""
    chunk = ArrayChunk(memoryview(b"x" * 2**16))
    reply.content["change"] = ArrayRecord({"bomb": GOOD})
    reply.content["change"]["bomb"].__dict__["_chunks"] = [(chunk.object_id, chunk)] * 1000


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

    def conduct(part, round, reply):
        caught.append(reply)
        return reply

    grid.conduct = conduct
    run(federate_once, grid)
    caught[0].metadata.__dict__["_reply_to_message_id"] = "1" * 64
    return caught[0]


def pending(link, **limits):
    return fetch.ReplyInParts(link, 2, "1" * 64, fetch.Limit(**limits))


def test_a_look_takes_what_is_there_and_waits_for_nothing(reply):
    link = Link(reply)
    waiting = pending(link)
    for there in range(len(link.objects)):
        link.there, before = there, link.asked
        assert waiting.poll() is None
        assert link.asked - before <= 2  # the one that has come, and the next, which has not
    assert link.confirmed == []
    link.there += 1
    found = waiting.poll()
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
        pending(link).poll()
    assert link.asked <= fetched
    assert link.confirmed or not fetched


def test_a_reply_whose_objects_vanish_is_refused(reply):
    link = Link(reply)
    waiting = pending(link)
    assert waiting.poll() is None
    link.objects.clear()
    with pytest.raises(fetch.Refused, match="never uploaded completely"):
        waiting.poll()


def test_a_look_at_a_closed_round_ends(reply):
    link = Link(reply)
    waiting = pending(link)
    waiting.abandoned, link.there = True, len(link.objects)
    assert waiting.poll() is None
    assert link.asked == 0
