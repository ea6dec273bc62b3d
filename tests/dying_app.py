"""A ClientApp whose node loses power in one stage of a masked round, before or after it has done its part.

REBAFL_TEST_DIE=mask:2:after names the stage, the round and when. For tests only.
"""

import os
import signal

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from rebafl.federation.app.client_app import app as honest
from rebafl.federation.app.masking import stage_of

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    stage = stage_of(message.content)
    here = f"{stage.value if stage else ''}:{message.metadata.group_id}"
    _die_at(f"{here}:before")
    reply = honest(message, context)
    _die_at(f"{here}:after")
    return reply


def _die_at(point: str) -> None:
    if os.environ.get("REBAFL_TEST_DIE") == point:
        os.killpg(0, signal.SIGKILL)  # the script that started the node, and all that it started
