"""Why should each message wait for torch? This SuperExec imports it once and forks a process for each message.

Flower starts a new Python for each message to a node; on a small device importing torch takes longer than training.
Every message still has a process of its own, which ends with it. It takes the options of `flower-superexec`:

    python -m rebafl.federation.warm --runtime-api-address 127.0.0.1:9094 --insecure
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

CLIENT = "flwr-clientapp"
BEFOREHAND = (
    "rebafl.federation.app.node.answer",
    "rebafl.federation.app.client_app",
    "flwr.supernode.cli.flwr_clientapp",
)


def launch(arguments: Sequence[str], **_: Any) -> int:
    """In place of `Popen`: a fork of this process goes on as the command."""
    if child := os.fork():
        return child
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = list(arguments)
        importlib.import_module("flwr.supernode.cli.flwr_clientapp").flwr_clientapp()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # nothing that belongs to the parent is to be tidied up here


def main() -> None:
    from flwr.supercore.cli.flower_superexec import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor

    for name in BEFOREHAND:
        importlib.import_module(name)

    class Forking:
        """What the executor needs of `subprocess`."""

        DEVNULL = subprocess.DEVNULL

        @staticmethod
        def Popen(arguments: Sequence[str], **options: Any) -> Any:
            return (launch if arguments[0] == CLIENT else subprocess.Popen)(arguments, **options)

    setattr(subprocess_executor, "subprocess", Forking)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing behind
    flower_superexec()


if __name__ == "__main__":
    main()
