"""A ClientApp that sends NaN where REBAFL_TEST_POISON is set, and is the real one elsewhere. For tests only."""

import os

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from rebafl.federation.app.client_app import app as honest

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    reply = honest(message, context)
    if os.environ.get("REBAFL_TEST_POISON"):
        for name, record in list(reply.content.array_records.items()):
            reply.content[name] = ArrayRecord({key: _spoilt(array) for key, array in record.items()})
    return reply


def _spoilt(array: Array) -> Array:
    values = array.numpy()
    return Array(np.full_like(values, np.nan)) if values.dtype.kind == "f" else array
