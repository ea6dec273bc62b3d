"""What does a node do when the server asks? It trains on its own data, and answers with its upload."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ...base.errors import UserError
from ...base.words import failure
from ...secagg.abort import Abort
from ..plain_log import keep_log_plain
from .masking import stage_of
from .node.answer import answer, held_classes
from .node.masked_answer import masked_answer
from .node_config import OWN_DATA, PARTITION_ID
from .records import NOTE, Malformed, failure_record

log = logging.getLogger("flwr")
app = ClientApp()
keep_log_plain()


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which part of the data set this node says it holds; or, asked about a round, which classes it will share."""
    if NOTE in message.content:
        return _reported(held_classes, message, context)
    part = context.node_config.get(PARTITION_ID, OWN_DATA)
    return Message(RecordDict({NOTE: ConfigRecord({PARTITION_ID: part})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round, or one step of a masked one."""
    return _reported(_answer, message, context)


def _answer(content: RecordDict, context: Context) -> RecordDict:
    return answer(content, context) if stage_of(content) is None else masked_answer(content, context)


def _reported(do: Callable[[RecordDict, Context], RecordDict], message: Message, context: Context) -> Message:
    """Whatever goes wrong here is reported to the server, which continues without this client."""
    try:
        return Message(do(message.content, context), reply_to=message)
    except (UserError, Malformed, Abort) as error:
        log.error("%s", error)
        return Message(failure_record(str(error)), reply_to=message)
    except Exception as error:
        log.exception("Training failed")
        return Message(failure_record(failure(error)), reply_to=message)
