"""An app that was killed is noticed at once: its node answers in its place, and the server's part is run again."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from rebafl.federation import server_apps
from rebafl.federation.flower_changes import apps
from rebafl.federation.flower_changes.apps import ForkingSubprocess
from rebafl.federation.ops import submission
from rebafl.federation.ops.processes import wait_until
from rebafl.federation.server_apps import MOST_KILLS, Restarts

RUN = 7
KILLED = "was killed by signal 9"


class Node:
    """What a SuperNode knows, with the change that is tested."""

    def __init__(self):
        self.state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
        self.state.set_node_id(5)
        self.store = self.state.object_store

    def order(self, group="1", run=RUN):
        """An order arrives, and an app is started for it."""
        metadata = Metadata(run, "", 1, 5, "", group, 1.7e9, 3600.0, "train")
        message = make_message(metadata, content=RecordDict({"x": ArrayRecord({"x": Array(np.zeros(2, np.float32))})}))
        message.metadata.__dict__["_message_id"] = message.object_id
        task = self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=run, fab_hash="0" * 64)
        assert task is not None
        self.keep(message, whole=True)
        token = self.state.claim_task(task)
        assert token
        assert self.state.activate_task(task)
        return task, message

    def keep(self, message, whole):
        """Announced, and all of its objects but the last uploaded, or all."""
        message.metadata.__dict__["_message_id"] = message.object_id
        session = self.state.start_session(RUN)
        self.state.store_message_and_object_tree(message, get_object_tree(message), session)
        objects = list(get_all_nested_objects(message).items())
        for name, part in objects if whole else objects[:-1]:
            self.state.store_object(RUN, session, name, part.deflate())

    def replies(self):
        return list(self.state.get_messages_legacy(is_reply=True))

    def taken(self):
        return self.state.get_messages_legacy(is_reply=False)

    def fail(self, task, details=KILLED):
        return self.state.finish_task(task, SubStatus.FAILED, details)


@pytest.fixture
def node(monkeypatch):
    for name in ("finish_task", "create_task"):
        monkeypatch.setattr(InMemoryNodeState, name, getattr(InMemoryNodeState, name))
    apps.answer_for_dead_apps()
    return Node()


@pytest.mark.parametrize("took", [True, False])
def test_the_node_answers_for_an_app_that_was_killed(node, took):
    """Whether or not the app had taken its order. Flower by itself waits for minutes, or for ever."""
    task, message = node.order()
    if took:
        node.taken()
    assert node.replies() == []
    assert node.fail(task)
    (reply,) = node.replies()
    assert reply.metadata.reply_to_message_id == message.metadata.message_id
    assert reply.error.reason == "the node's app was killed by signal 9"
    assert not node.fail(task)  # once
    assert node.replies() == []


def test_a_reply_that_was_given_stands(node):
    task, message = node.order()
    node.taken()
    node.keep(Message(RecordDict(), reply_to=message), whole=True)
    node.fail(task)
    (reply,) = node.replies()
    assert not reply.has_error()


def half(message):
    return Message(RecordDict({"y": ArrayRecord({"y": Array(np.ones(3, np.float32))})}), reply_to=message)


def test_half_a_reply_is_replaced(node):
    task, message = node.order()
    node.taken()
    node.keep(half(message), whole=False)
    node.fail(task)
    (reply,) = node.replies()
    assert reply.has_error()


def test_who_waits_for_the_rest_of_a_reply_gives_up_and_no_second_one_comes(node):
    task, message = node.order()
    node.taken()
    reply = half(message)
    node.keep(reply, whole=False)
    assert len(node.replies()) == 1  # the SuperNode sends it, and waits for the rest
    node.fail(task)
    assert all(node.store.get(name) is None for name in get_all_nested_objects(reply))
    assert node.replies() == []  # it would be sent in place of the next one


def test_a_later_order_is_not_answered_for_an_earlier_app(node):
    task, message = node.order()
    node.taken()
    node.state.delete_messages(message_ids=[message.metadata.message_id])  # answered
    node.order("2")
    node.fail(task)
    assert node.replies() == []
    assert len(node.taken()) == 1


def test_an_app_of_a_run_that_is_over_does_not_stand_in_the_way(node):
    """The server's part was killed and submitted again while it sent an order: Flower lets that order's app wait."""
    old, message = node.order(run=RUN - 1)
    node.state.delete_messages(message_ids=[message.metadata.message_id])
    task, message = node.order("2")
    assert node.state.get_tasks(task_ids=[old])[0].status.status == "finished"  # its token is worth nothing any more
    node.taken()
    node.fail(task)
    (reply,) = node.replies()
    assert reply.metadata.reply_to_message_id == message.metadata.message_id


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGKILL, KILLED), (0, "ended with code 3"), (-1, None)])
def test_the_superexec_says_at_once_how_an_app_ended(monkeypatch, number, reason):
    told, order = [], []
    script = "exit 3" if number == 0 else "exit 0" if number == -1 else "sleep 100"
    with subprocess.Popen(["/bin/sh", "-c", f"exec {script}" if number > 0 else script]) as app:
        monkeypatch.setattr(apps, "fork_app", lambda arguments: app.pid)
        monkeypatch.setattr(apps, "report_dead", lambda arguments, reason: told.append(reason))

        @contextmanager
        def killed(signal_number):
            order.append((signal_number, len(told)))
            yield
            order.append((signal_number, len(told)))

        assert ForkingSubprocess(killed).Popen(["flwr-serverapp", "--token", "t"]) == app.pid
        if number > 0:
            os.kill(app.pid, number)
            assert wait_until(lambda: len(order) == 2, 30)
            assert order == [(9, 0), (9, 1)]
        else:
            assert wait_until(lambda: not psutil.pid_exists(app.pid), 30)
            assert wait_until(lambda: bool(told) == bool(reason), 30)
            assert order == []
    assert told == ([reason] if reason else [])


@pytest.fixture
def requested(tmp_path, monkeypatch):
    """A server with a requested run of which some rounds are done, and what was submitted."""
    done, submitted = [0], []
    monkeypatch.setattr(submission, "rounds_done", lambda out: done[0])
    monkeypatch.setattr(server_apps, "submit_requested", lambda folder, port: submitted.append((folder, port)))
    submission.request_run(tmp_path, {"rounds": 9}, tmp_path / "run")
    return done, submitted


def test_a_killed_run_is_submitted_again_but_not_for_ever(tmp_path, requested):
    done, submitted = requested
    restarts = Restarts(tmp_path, 9092)
    (tmp_path / "submitted.json").write_text('{"run": 1}')
    for kill in range(MOST_KILLS):
        with restarts(9):
            assert not (tmp_path / "submitted.json").exists()  # nobody takes this for the end of the run
            assert len(submitted) == kill
        assert submitted == [(tmp_path, 9092)] * (kill + 1)
    done[0] = 1  # a round was finished: it goes on
    with restarts(9):
        pass
    assert len(submitted) == MOST_KILLS + 1
    for _ in range(MOST_KILLS):
        with restarts(11):
            pass
    assert len(submitted) == 2 * MOST_KILLS
    problem = json.loads((tmp_path / "submitted.json").read_text())["error"]
    assert problem.startswith(
        "the server's app was killed 4 times in a row, last by signal 11, without finishing a round"
    )
