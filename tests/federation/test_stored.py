"""What one member can have stored at the server is bounded, whatever it announces and uploads."""

import shutil
import sqlite3
import time
from datetime import timedelta

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.date import now
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories
from flwr.superlink.servicer.fleet import fleet_handlers

from rebafl.federation.flower_changes.storing import bound_members, drop_expired
from rebafl.federation.stored import SPARE, TIMES, Ledger

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # of Flower's database


def test_a_member_has_one_reply_of_bounded_size():
    ledger = Ledger()
    assert ledger.most == SPARE
    ledger.order_given(1, ["a", "b"])
    ledger.part_given(1, "a", 1000)
    ledger.part_given(1, "b", 500)
    for _ in range(5):
        ledger.part_given(1, "a", 1000)  # again and again
        ledger.part_given(1, "own", 10**9)  # what it has stored there itself
        ledger.part_given(2, "a", 10**9)  # without an order
    assert ledger.most == TIMES * 1500 + SPARE
    assert ledger.begin(1, "s", "root") is None
    assert ledger.refuses(1, "s", ledger.most) is None
    assert ledger.refuses(2, "s", 1).root == ""  # the session of another member
    assert ledger.refuses(1, "another", 1).root == ""
    assert ledger.refuses(1, "s", 1).root == "root"
    assert ledger.refuses(1, "s", 1).root == ""  # it is dropped, and stays so
    ledger.begin(1, "t", "root 2")
    assert ledger.begin(1, "u", "root 3").root == "root 2"  # in place of that one


def open_state(path):
    _, factory = get_objectstore_linkstate_factories(str(path), get_federation_manager(is_simulation=False))
    return factory.state()


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A database without anything in it; to make it takes its time."""
    path = tmp_path_factory.mktemp("empty") / "superlink.db"
    open_state(path)
    return path


@pytest.fixture
def link(tmp_path, monkeypatch, empty):
    """A SuperLink's state with a run and two nodes, and its handlers as changed."""
    for name in ("pull_messages", "pull_object", "push_messages", "push_object"):
        monkeypatch.setattr(fleet_handlers, name, getattr(fleet_handlers, name))
    ledger = Ledger()
    bound_members(ledger)
    path = shutil.copyfile(empty, tmp_path / "superlink.db")
    return Link(open_state(path), ledger, path)


class Link:
    def __init__(self, state, ledger, path):
        self.state, self.ledger, self.path = state, ledger, path
        self.nodes = [state.create_node(NOOP_FLWR_AID, "", f"key {k}".encode(), 30) for k in range(2)]
        for node in self.nodes:
            state.activate_node(node, 30)
        self.run = begin(state)

    def order(self, node, values, ttl=3600.0):
        """The server's app asks a node, which fetches all of it."""
        metadata = Metadata(self.run, "", SUPERLINK_NODE_ID, node, "", "1", time.time(), ttl, "train")
        message = make_message(metadata, content=content(values))
        keep(self.state, self.run, message)
        received = fleet_handlers.pull_messages(
            PullMessagesRequest(node=Node(node_id=node)), self.state, self.state.object_store
        )
        assert len(received.messages_list) == 1
        for name in get_all_nested_objects(message):
            request = PullObjectRequest(node=Node(node_id=node), run_id=self.run, object_id=name)
            assert fleet_handlers.pull_object(request, self.state).object_available
        return message

    def announce(self, node, reply, by=None):
        reply.metadata.__dict__["_message_id"] = reply.object_id
        bare = message_to_proto(make_message(reply.metadata, content=RecordDict()))
        request = PushMessagesRequest(
            node=Node(node_id=by or node), messages_list=[bare], message_object_trees=[get_object_tree(reply)]
        )
        return fleet_handlers.push_messages(request, self.state)

    def upload(self, node, reply, session):
        """Part by part; how many were stored."""
        parts = [
            PushObjectRequest(
                node=Node(node_id=node),
                run_id=self.run,
                object_id=name,
                object_content=part.deflate(),
                session_id=session,
            )
            for name, part in get_all_nested_objects(reply).items()
        ]
        return [fleet_handlers.push_object(part, self.state).stored for part in parts]

    def stored(self):
        """Bytes, objects, sessions and messages in the database."""
        with sqlite3.connect(self.path) as database:
            size = "SELECT coalesce(sum(length(content)), 0), count(*) FROM objects"
            counts = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES]
            answer = (*database.execute(size).fetchone(), *counts)
        database.close()
        return answer


TABLES = ("object_push_sessions", "message_ins", "message_res")


def content(values):
    return RecordDict({"x": ArrayRecord({str(k): Array(value) for k, value in enumerate(values)})})


def noise(count, seed=0):
    """So many arrays of a megabyte."""
    return list(np.random.default_rng(seed).integers(0, 255, (count, 2**20), np.uint8))


def keep(state, run, message):
    message.metadata.__dict__["_message_id"] = message.object_id
    session = state.start_session(run)
    stored, _ = state.store_message_and_object_tree(message, get_object_tree(message), session)
    assert stored
    for name, part in get_all_nested_objects(message).items():
        state.store_object(run, session, name, part.deflate())


def begin(state):
    """A run whose app is at work."""
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    (info,) = state.get_run_info(run_ids=[run])
    assert state.claim_task(info.primary_task_id)
    assert state.activate_task(info.primary_task_id)
    return run


def answer(message, values):
    return Message(content(values), reply_to=message)


def test_an_honest_reply_is_stored_whole(link):
    node, _ = link.nodes
    reply = answer(link.order(node, noise(2, seed=1)), noise(3))
    session = link.announce(node, reply).session_id
    assert all(link.upload(node, reply, session))
    assert link.stored()[0] > 3 * 2**20


def test_a_member_that_uploads_too_much_has_nothing_stored(link, capsys):
    node, other = link.nodes
    link.order(other, noise(1, seed=1))  # theirs counts as well
    before = link.stored()
    order = link.order(node, [np.zeros(4)])
    flood = answer(order, noise(30))
    session = link.announce(node, flood).session_id
    stored = link.upload(node, flood, session)
    assert 2**20 < link.ledger.most < 10 * 2**20
    assert 0 < sum(stored) < len(stored) // 2
    assert not any(stored[sum(stored) :])
    size, _, sessions, _, replies = link.stored()
    assert size < before[0] + 2**16
    assert (sessions, replies) == (0, 0)
    assert f"Node {node} uploads more than {link.ledger.most} bytes: its reply is dropped." in capsys.readouterr().err


def test_replies_that_nobody_fetches_do_not_pile_up(link):
    node, _ = link.nodes
    sizes = []
    for number in range(4):
        reply = answer(link.order(node, [np.array([number])]), [*noise(3), np.array([number])])
        link.upload(node, reply, link.announce(node, reply).session_id)
        sizes.append(link.stored()[:3])
        half = answer(link.order(node, [np.array([number + 10])]), [*noise(3), np.array([number])])
        link.announce(node, half)  # and never uploaded
    assert all(size < 4 * 2**20 for size, _, _ in sizes)
    assert link.stored()[2] == 1
    assert link.stored()[1] < 2 * sizes[0][1] + 40


def test_nobody_speaks_for_another_or_as_the_server(link):
    node, other = link.nodes
    order = link.order(other, [np.zeros(1)])
    before = link.stored()
    forged = answer(order, noise(1))
    no_reply = Metadata(link.run, "", SUPERLINK_NODE_ID, other, "", "1", time.time(), 60.0, "train")
    for message in (forged, make_message(no_reply, content=content(noise(1)))):
        with pytest.raises(FlowerError):
            link.announce(other, message, by=node)
    assert link.stored() == before
    session = link.announce(other, forged).session_id
    assert link.upload(node, forged, session) == [False] * len(get_all_nested_objects(forged))
    assert all(link.upload(other, forged, session))


def test_what_has_expired_is_dropped(link, monkeypatch):
    node, other = link.nodes
    fresh = link.order(other, [np.array([1])], ttl=1e5)
    before = link.stored()
    for number in range(3):
        link.order(node, [*noise(1), np.array([number])])
    assert link.stored()[0] > before[0] + 2**20
    drop_expired(link.state)
    assert link.stored()[0] > before[0] + 2**20
    with monkeypatch.context() as later:
        later.setattr("flwr.supercore.date.now", lambda: now() + timedelta(hours=2))
        drop_expired(link.state)
    assert link.stored() == before
    reply = answer(fresh, [np.array([2])])
    assert all(link.upload(other, reply, link.announce(other, reply).session_id))  # what has not expired is there
