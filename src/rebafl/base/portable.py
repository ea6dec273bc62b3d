"""Which instructions compute a number? AVX2 and FMA on every x86-64 processor that has them, not the widest it has.

Torch chooses its code by the processor. With AVX-512 sums are added up in another order than without, and a run's last
bits, soon its curves, depend on the machine. Torch's parts read environment variables when they first compute, so this
module is imported before anything else of the package and sets them; processes started from here inherit them.

`REBAFL_NATIVE=1` leaves the choice to torch. A variable that the user set is left as it is. Both go into the record.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NATIVE = "REBAFL_NATIVE"
ATEN, ONEDNN, MKL = "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"
OTHER_NAMES = {ONEDNN: "DNNL_MAX_CPU_ISA"}  # an older name that is read as well
ALSO_READ = ("MKL_ENABLE_INSTRUCTIONS", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
INTEL = "GenuineIntel"
AVX2 = "AVX2"
MKL_MODES = {1: "OFF", 2: "AUTO", 3: "COMPATIBLE", 4: "SSE2", 6: "SSSE3", 7: "SSE4_1", 8: "SSE4_2", 9: "AVX",
             10: AVX2, 11: "AVX512_MIC", 12: "AVX512"}  # fmt: skip
MKL_STRICT = 0x10000


@cache
def processor() -> Mapping[str, str]:
    """What the kernel says of the first processor; empty where it says nothing."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def native() -> bool:
    """Did the user ask for whatever this processor has?"""
    return os.environ.get(NATIVE, "0") not in ("", "0")


def has_avx2() -> bool:
    return platform.machine() == "x86_64" and {"avx2", "fma"} <= set(processor().get("flags", "").split())


def wanted() -> dict[str, str]:
    """The variables that make any x86-64 processor with AVX2 and FMA compute alike; none where that cannot be."""
    if native() or not has_avx2():
        return {}
    # MKL takes code of its own for Intel's processors, chosen by their generation unless told; elsewhere it cannot be
    mkl = {MKL: AVX2} if processor().get("vendor_id") == INTEL else {}
    return {ATEN: "avx2", ONEDNN: AVX2, **mkl}


def set_by_user(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are set otherwise than they would be by us."""
    names = (ATEN, ONEDNN, MKL, *OTHER_NAMES.values(), *ALSO_READ)
    ours = wanted()
    ours |= {other: ours[name] for name, other in OTHER_NAMES.items() if name in ours}
    return {n: environment[n] for n in names if n in environment and environment[n].lower() != ours.get(n, "").lower()}


_set_here: set[str] = set()


def pin() -> None:
    """Set what is not set yet, and warn if torch has computed already and no longer looks."""
    for name, value in wanted().items():
        if name not in os.environ and OTHER_NAMES.get(name, name) not in os.environ:
            os.environ[name] = value
            _set_here.add(name)
    if "torch" in sys.modules and (late := too_late()):
        warnings.warn(
            f"torch had computed before rebafl was imported, and keeps using {late}: last bits differ from those "
            f"of other machines; import rebafl first, or set {NATIVE}=1 if that is as you want it.",
            stacklevel=4,
        )


def for_others() -> dict[str, str]:
    """The environment without what was set here: for programs that are not ours."""
    return {name: value for name, value in os.environ.items() if name not in _set_here}


@dataclass(frozen=True)
class InUse:
    """What torch's parts really use: its own loops (ATen), the convolutions (oneDNN), the matrix products (MKL)."""

    aten: str
    onednn: str
    mkl: str


def in_use() -> InUse:
    """Asking settles it: from then on the variables are not read again."""
    import torch

    return InUse(torch.backends.cpu.get_cpu_capability(), _onednn(), _mkl())


def too_late() -> str:
    """What is used although another was asked for; empty if nothing is."""
    asked, used = wanted(), in_use()
    if not asked or set_by_user(os.environ):
        return ""
    parts = (("ATen", used.aten, AVX2), ("oneDNN", used.onednn, AVX2), ("MKL", used.mkl, asked.get(MKL, used.mkl)))
    return ", ".join(f"{name} {actual}" for name, actual, right in parts if actual != right)


def _onednn() -> str:
    """It does not tell which it uses, but torch asks it for bfloat16, and it says yes from AVX-512 on."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "none"
    with suppress(AttributeError, RuntimeError):  # a torch without this question: the variable has to do
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return "AVX512"
    limit = os.environ.get(ONEDNN) or os.environ.get(OTHER_NAMES[ONEDNN]) or AVX2
    return limit.upper() if has_avx2() else "no AVX2"


def _mkl() -> str:
    """Its mode of reproducibility: as it says itself, else as the environment does."""
    import torch

    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return "none"
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        mode = library.mkl_serv_cbwr_get(-1)
        strict = ",STRICT" if mode & MKL_STRICT else ""
        return MKL_MODES.get(mode & ~MKL_STRICT, str(mode)) + strict
    return os.environ.get(MKL, "OFF")


pin()
