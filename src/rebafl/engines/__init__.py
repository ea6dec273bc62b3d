"""Where are clients trained? In this process, or in worker processes; the results are the same bits."""

from __future__ import annotations

import os

from .inprocess import InProcess
from .processes import Processes
from .work import Engine, Outcome, Work

__all__ = ["Engine", "InProcess", "Outcome", "Processes", "Work", "start_engine"]


def start_engine(work: Work, workers: int) -> Engine:
    """`workers` processes; 0 means one for each core that this process may use."""
    count = workers or _cores()
    return InProcess(work) if count == 1 else Processes(work, count)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
