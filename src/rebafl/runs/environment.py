"""What may a number depend on besides the settings? The versions, the code and the processor it was computed with."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..base import portable
from ..base.errors import exists
from ..base.version import VERSION
from ..models import kernels

SOURCE = Path(__file__).parents[3]


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
        "processor": portable.processor().get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "bits": kind_of_bits(portable.in_use(), portable.set_by_user(os.environ), kernels.name()),
        "instructions": _instructions(),
    }


PORTABLE = "portable"


def kind_of_bits(used: portable.InUse, set_by_user: Mapping[str, str], kernel: str) -> str:
    """One name for all that decides last bits besides the settings, the code and the versions.

    `portable`: AVX2 and FMA, the compiled kernel, on an AMD processor. MKL, which multiplies the matrices, has other
    code for those of Intel, and nothing can make it take the same.
    """
    vendor = {"AuthenticAMD": "", portable.INTEL: "Intel"}.get(vendor_id := portable.processor().get("vendor_id", ""))
    parts = [
        _base(used, set_by_user),
        vendor_id if vendor is None else vendor,
        f"MKL {used.mkl}" if portable.wanted().get(portable.MKL, used.mkl) != used.mkl else "",
        *(f"{name}={value}" for name, value in set_by_user.items()),
        "" if kernel == "compiled" else "without a C compiler",
    ]
    return ", ".join(filter(None, parts))


def _base(used: portable.InUse, set_by_user: Mapping[str, str]) -> str:
    if platform.machine() != "x86_64":
        return platform.machine()
    if portable.native():
        return f"native {used.aten}"
    if (used.aten, used.onednn) == (portable.AVX2, portable.AVX2) and not set_by_user:
        return PORTABLE
    return f"torch {used.aten}, oneDNN {used.onednn}"


def other_bits(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How a record's kind of bits differs from another's, as half a sentence; empty if it does not, or is not known."""
    before, after = recorded.get("bits"), now.get("bits")
    return f"its bits are {before!r}, those of this machine {after!r}" if before and after and before != after else ""


def changed_facts(known: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that are others now; what an older record did not know of is no change."""
    return {name: value for name, value in now.items() if name in known and known[name] != value}


def _instructions() -> dict[str, Any]:
    """In detail: the processor, and what each part computes with on it."""
    cpu, used = portable.processor(), portable.in_use()
    names = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    return {
        "cpu": ", ".join(f"{name} {cpu[name]}" for name in names if name in cpu),
        "caches": _caches(),
        "torch": used.aten,
        "onednn": used.onednn,
        "mkl": f"{mkl[1]} {used.mkl}" if mkl else used.mkl,
        "kernel": kernels.instructions(),
        "libc": " ".join(platform.libc_ver()),
    }


def _caches() -> str:
    """Their sizes: the blocks that convolutions are cut into may depend on them."""
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return " ".join(path.read_text().strip() for path in sizes)


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
