"""What may a number depend on besides the settings? The versions, the code and the processor it was computed with."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import kernels
from .errors import exists
from .version import VERSION

SOURCE = Path(__file__).parents[2]


def machine() -> dict[str, Any]:
    """For the record of every run and every measurement."""
    return {
        "rebafl": VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": kernels.name(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _commit() -> str:
    """The commit of a checked-out source tree, marked if its code was changed since; empty for an installed package."""
    if not exists(SOURCE / ".git"):
        return ""
    head = _git("rev-parse", "HEAD")
    return f"{head}-dirty" if head and _git("status", "--porcelain", "--", "src") else head


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(SOURCE), *words], capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:  # no git here
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
