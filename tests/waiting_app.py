"""A ClientApp that waits to be killed where the file REBAFL_TEST_HOLD is, and is the real one elsewhere. For tests."""

import os
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from rebafl.federation.app.client_app import app as honest

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    hold = Path(os.environ["REBAFL_TEST_HOLD"])
    if hold.exists():
        hold.with_suffix(".pid").write_text(str(os.getpid()))
        while hold.exists():
            time.sleep(0.1)
    return honest(message, context)
