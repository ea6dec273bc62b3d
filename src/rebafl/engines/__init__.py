"""Where are clients trained? In this process, in worker processes, or on Ray; the results are the same bits."""

from __future__ import annotations

import os
from typing import Literal

from ..base.errors import UserError
from ..training.client_work import Work
from ..training.device import CPU
from .engine import Engine, Outcome, StateOf
from .inprocess import InProcess
from .ray_tasks import RayTasks
from .workers import WorkerProcesses

__all__ = [
    "Engine",
    "InProcess",
    "Outcome",
    "RayTasks",
    "StateOf",
    "Where",
    "WorkerProcesses",
    "cores",
    "start_engine",
]

Where = Literal["local", "ray"]


def start_engine(work: Work, where: Where, workers: int) -> Engine:
    """`workers` processes; 0 means one for each core that this process may use."""
    count = workers or cores()
    if where == "ray" and work.device != CPU:
        raise UserError(f"device = {work.device!r} trains in processes of this machine; use engine=local.")
    if count > 1 and work.device != CPU and work.again is None:
        raise UserError(
            f"device = {work.device!r} with several workers starts fresh processes, which cannot be handed data or a "
            "model from Python; use workers=1, or name them: dataset=module:function, model=module:callable."
        )
    if where == "ray":
        return RayTasks(work, count)
    return InProcess(work) if count == 1 else WorkerProcesses(work, count)


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
