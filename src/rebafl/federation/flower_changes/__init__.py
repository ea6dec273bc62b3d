"""What is changed in Flower and uvicorn, and which of their private parts are used? All of it is in this package.

Flower promises to keep `flwr.app`, `flwr.clientapp` and `flwr.serverapp`; other modules use nothing else of it. What
is here was written for one version of Flower, and is checked when a process starts. Flower is imported inside
functions: the commands are there, and say how to get it, where it is not installed.
"""

from __future__ import annotations

from .apps import start_superexec
from .asking import ControlApi, control_api, run_flwr, send_secret
from .installed import FLOWER, need_flower
from .messages import GONE, ReplyObjects, has_reply_objects, send, unpacked_bytes
from .serving import start_superlink, start_supernode
from .storing import database_errors

__all__ = [
    "FLOWER",
    "GONE",
    "ControlApi",
    "ReplyObjects",
    "control_api",
    "database_errors",
    "has_reply_objects",
    "need_flower",
    "run_flwr",
    "send",
    "send_secret",
    "start_superexec",
    "start_superlink",
    "start_supernode",
    "unpacked_bytes",
]
