"""What does a node do when the server asks? It trains on its own data, and answers with its upload.

The node's config says which data are its own: `partition-id`, a part of the run's data set, or `data`, the
path of an `.npz` or a folder of class folders. `state` names a folder where it keeps its state.
"""

from __future__ import annotations

import logging

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ...base.errors import UserError
from ...engines.engine import failure_text
from .node.answer import answer
from .records import Malformed, failure_record

log = logging.getLogger("flwr")
app = ClientApp()

PARTITION = "partition-id"


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which part of the data set this node says it holds; -1: none, it has data of its own."""
    part = context.node_config.get(PARTITION, -1)
    return Message(RecordDict({"note": ConfigRecord({PARTITION: part})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round. Whatever goes wrong here is told to the server, which goes on without this client."""
    try:
        return Message(answer(message.content, context), reply_to=message)
    except (UserError, Malformed) as error:
        log.error("%s", error)
        return Message(failure_record(str(error)), reply_to=message)
    except Exception as error:
        log.exception("Training failed")
        return Message(failure_record(failure_text(error)), reply_to=message)
