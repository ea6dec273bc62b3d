"""How does the server app send its messages, and fetch replies object by object? Over the private parts of its grid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

GONE = {3, 4, 5}  # Flower's error codes for a node or a message that is not there any more


def send(grid: Grid, message: Message) -> str:
    """Send one message; its id, or '' if it could not be sent, as its node may be gone.

    The grid raises an error of a private module if a node vanishes while a message is uploaded for it.
    """
    import httpx
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

    try:
        return next(iter(grid.push_messages([message])), "") or ""
    except (httpx.HTTPStatusError, ObjectPushError):
        return ""


def has_reply_objects(grid: Grid) -> bool:
    """Is this the grid of a SuperLink? That of Flower's simulation hands replies over in one piece."""
    return hasattr(grid, "_runtime_client")


class ReplyObjects:
    """The reply to one message on a SuperLink, object by object, over the grid's private connection.

    A node announces its reply as a tree of objects and uploads them one by one. The grid's own `pull_messages`, once
    it has seen such a tree, waits until the last object is there, whoever uploads it, and however large it is.
    """

    def __init__(self, grid: Any, sent: str) -> None:
        self.client, self.node, self.run = grid._runtime_client, grid.node, grid.run.run_id
        self.sent, self.message_id = sent, ""

    def announced(self) -> Iterator[str] | None:
        """The names of all objects, in the order of upload; None if no reply was announced. It is announced once."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        response = self._call("PullMessages", PullAppMessagesRequest(message_ids=[self.sent]))
        for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == self.sent:
                self.message_id = message.metadata.message_id
                return (node.object_id for node in iterate_object_tree(tree))
        return None

    def fetch(self, name: str) -> bytes | None:
        """An object's content; None if it is not there yet. Raises `LookupError` if it never will be."""
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self.node, run_id=self.run, object_id=name)
        response = self._call("PullObject", request)
        if not response.object_found:
            raise LookupError(name)
        return bytes(response.object_content) if response.object_available else None

    def confirm(self) -> None:
        """The SuperLink need not keep the reply any longer."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        request = ConfirmMessageReceivedRequest(node=self.node, run_id=self.run, message_object_id=self.message_id)
        self._call("ConfirmMessageReceived", request)

    def assembled(self, contents: Mapping[str, bytes]) -> Any:
        """The reply that these objects make; whatever it is."""
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        return inflate_object_from_contents(self.message_id, dict(contents))

    def _call(self, method: str, request: Any) -> Any:
        from flwr.supercore.run import RunNotRunningException

        try:
            return getattr(self.client, method)(request)
        except RunNotRunningException:  # no `Exception`: it would pass through all handlers
            raise ConnectionError("the SuperLink says that the run is over") from None


def unpacked_bytes(contents: Mapping[str, bytes]) -> int:
    """How large the arrays in these objects are: one may name the same chunk again and again."""
    from flwr.app import Array
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_head_values_from_object_content,
    )

    size = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            chunks = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            size += sum(len(contents[children[number]]) for number in chunks)
    return size
