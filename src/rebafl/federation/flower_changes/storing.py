"""What does a SuperLink store? Of each member one reply of bounded size, and nothing for longer than it may be used."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

from ...base.words import one_line
from ..stored import Ledger, StoredReply

EXPIRED_SECONDS = 30.0  # between two times that expired messages are dropped


def database_errors() -> tuple[type[Exception], ...]:
    """What a SuperLink raises whose database cannot be used."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    return CommandError, SQLAlchemyError, sqlite3.Error


def bound_members(ledger: Ledger) -> None:
    """Make the SuperLink store no more of a member than one reply, from nobody else, and not larger than it may be.

    Flower takes whatever is announced, under whatever sender's name, and keeps it until somebody fetches it. It would
    also take a message that is no reply, and hand it to another node as if it came from the server.
    """
    from flwr.proto.message_pb2 import PushObjectResponse
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.superlink.servicer.fleet import fleet_handlers

    pull_messages, pull_object = fleet_handlers.pull_messages, fleet_handlers.pull_object
    push_messages, push_object = fleet_handlers.push_messages, fleet_handlers.push_object

    def give_order(request: Any, state: Any, store: Any) -> Any:
        response = pull_messages(request, state, store)
        for tree in response.message_object_trees:
            ledger.order_given(request.node.node_id, (node.object_id for node in iterate_object_tree(tree)))
        return response

    def give_part(request: Any, state: Any) -> Any:
        response = pull_object(request, state)
        ledger.part_given(request.node.node_id, request.object_id, len(response.object_content))
        return response

    def take_reply(request: Any, state: Any) -> Any:
        facts = [message.metadata for message in request.messages_list]
        roots = [tree.object_id for tree in request.message_object_trees]
        own = [
            fact.message_id for fact in facts if fact.src_node_id == request.node.node_id and fact.reply_to_message_id
        ]
        if len(own) != 1 or own != roots or len(facts) != 1:
            raise FlowerError(ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, "no reply of this node")
        response = push_messages(request, state)
        if response.session_id and (before := ledger.begin(request.node.node_id, response.session_id, own[0])):
            drop(state, before)
        return response

    def take_part(request: Any, state: Any) -> Any:
        node, size = request.node.node_id, len(request.object_content)
        if (reply := ledger.refuses(node, request.session_id, size)) is None:
            return push_object(request, state)
        if reply.root:
            drop(state, reply)
            print(
                f"Node {node} uploads more than {ledger.most} bytes: its reply is dropped.", file=sys.stderr, flush=True
            )
        return PushObjectResponse(stored=False)

    def drop(state: Any, reply: StoredReply) -> None:
        with state.session():
            state._cleanup_push_session(reply.session, cleanup_messages=True)
            state.object_store.delete(reply.root)

    changed = {"pull_messages": give_order, "pull_object": give_part}
    for name, handler in {**changed, "push_messages": take_reply, "push_object": take_part}.items():
        setattr(fleet_handlers, name, handler)


def keep_dropping_expired(state_of: Callable[[], Any]) -> None:
    """Now and then, drop the orders that nobody may answer any more, and the replies that nobody has fetched."""
    while True:
        time.sleep(EXPIRED_SECONDS)
        try:
            drop_expired(state_of())
        except database_errors() as error:  # it may be busy; then next time
            print(f"Expired messages were not dropped: {one_line(error)}", file=sys.stderr, flush=True)


def drop_expired(state: Any) -> None:
    """Flower itself drops a message when it is asked about it, which nobody does once a round is over."""
    from flwr.supercore.date import now
    from flwr.supercore.state.schema.linkstate_models import MessageIns, MessageRes
    from sqlalchemy import select

    with state.session() as session:
        expired = MessageIns.created_at + MessageIns.ttl < now().timestamp()
        orders = set(session.scalars(select(MessageIns.message_id).where(expired)).all())
        replies = session.scalars(select(MessageRes.message_id).where(MessageRes.reply_to_message_id.in_(orders))).all()
        for message_id in (*orders, *replies):
            state.object_store.delete(message_id)
        state.delete_messages(orders)
