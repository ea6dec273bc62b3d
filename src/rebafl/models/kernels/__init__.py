"""How is convolve, pool, activate computed fast? By a page of C, compiled once on the machine it runs on.

Without a C compiler, and for what the C does not cover, torch's own operations compute the same function:
slower, and with other last bits in the gradients. A run's record says which it was (`kernel`).

The C fixes every rounding, so that its bits depend neither on the compiler nor on the processor it is tuned for.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...base.errors import UserError
from ...base.files import cache_folder, sync, write_whole
from ...base.portable import processor, wanted

SOURCE = Path(__file__).with_name("pooled_conv.c")
FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC")
AVX2, NATIVE = ("-mavx2", "-mfma", "-mtune=native"), ("-march=native",)  # tuning moves instructions, and no bits
DIGEST = hashlib.sha256().digest_size
REALS = {torch.float32: (), torch.float64: ("-DREAL=double", "-DWHOLE=int64_t")}
SLOPE = 0.01  # of the leaky ReLU, torch's default
LANES = 8  # the C takes outputs in whole vectors of 32 bytes
FEW = 1  # channels: grey images; with more, torch's own convolution is faster
CHANNELS_LAST = torch.channels_last


def pooled_conv(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Leaky ReLU of the 2x2 max-pooled convolution: the same function as the textbook's order, at less of the work.

    Both the bias and the activation keep the order of values, so they may wait until only the largest are left.
    """
    if _covered(x, weight):
        out: Tensor = cast(Any, _PooledConv).apply(x, weight, bias, padding)  # torch does not type it
        return out
    pooled = F.max_pool2d(F.conv2d(x, weight, padding=padding), 2)
    return F.leaky_relu(pooled.add_(bias[:, None, None]), SLOPE, inplace=True)


def name() -> str:
    """Which of the two is used on this machine, for the record."""
    return "compiled" if library(torch.float32) else "torch"


def instructions() -> str:
    """What the C may be compiled to on this machine, for the record."""
    return " ".join(_target()) if library(torch.float32) else "none"


@contextmanager
def torch_only() -> Iterator[None]:
    """Torch's own operations for a while: what counts them, or differentiates twice, must see them."""
    global _allowed
    before, _allowed = _allowed, False
    try:
        yield
    finally:
        _allowed = before


_allowed = True


def _covered(x: Tensor, weight: Tensor) -> bool:
    plain = type(x) is Tensor and x.device.type == "cpu" and x.dtype == weight.dtype  # no tracer's stand-in
    shaped = weight.shape[0] % LANES == 0 and weight.shape[2] == weight.shape[3]
    return _allowed and plain and shaped and x.dtype in REALS and library(x.dtype) is not None


class _Shape(ctypes.Structure):
    """As in the C file."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("images", "height", "width", "channels", "outputs", "side", "padding")),
        ("slope", ctypes.c_double),
    )


class _PooledConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        x, weight = (tensor.contiguous(memory_format=CHANNELS_LAST) for tensor in (x, weight))
        count, channels, *sides = x.shape
        outputs, side = weight.shape[0], weight.shape[2]
        ctx.shape = _Shape(count, *sides, channels, outputs, side, padding, SLOPE)
        size = (count, outputs, *((length + 2 * padding - side + 1) // 2 for length in sides))
        out = torch.empty(size, dtype=x.dtype, memory_format=CHANNELS_LAST)
        chosen = torch.empty(size, dtype=torch.uint8, memory_format=CHANNELS_LAST)
        if channels <= FEW and outputs % (2 * LANES) == 0:
            _call(x.dtype, "convolve", ctx.shape, x, weight, bias.contiguous(), out, chosen)
        else:
            convolved = F.conv2d(x, weight, padding=padding).contiguous(memory_format=CHANNELS_LAST)
            _call(x.dtype, "pool", ctx.shape, convolved, bias.contiguous(), out, chosen)
        ctx.save_for_backward(x, weight, out, chosen)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out, chosen = ctx.saved_tensors
        dout = dout.contiguous(memory_format=CHANNELS_LAST)
        dweight, dbias = torch.empty_like(weight), dout.new_empty(weight.shape[0])
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        _call(x.dtype, "backward", ctx.shape, dout, out, chosen, x, weight, dweight, dbias, dx)
        return dx, dweight, dbias, None


def _call(dtype: torch.dtype, function: str, shape: _Shape, *tensors: Tensor | None) -> None:
    pointers = (ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors)
    if getattr(library(dtype), function)(ctypes.byref(shape), *pointers):
        raise MemoryError("no memory left for the gradients of a convolution")


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for this type of number; None where they cannot be compiled."""
    command = [os.environ.get("CC", "cc"), *FLAGS, *_target(), *REALS[dtype]]
    try:
        version = subprocess.run([command[0], "--version"], capture_output=True, check=True, timeout=60).stdout
        built_from = (SOURCE.read_bytes(), " ".join(command).encode(), version, _processor())
        target = _folder() / f"{hashlib.sha256(b'|'.join(built_from)).hexdigest()[:20]}.so"
        if not _whole(target):
            _compile(command, target)
        return ctypes.CDLL(str(target))
    except (OSError, subprocess.SubprocessError, RuntimeError, UserError):  # no compiler, no home, no room there
        return None


def _target() -> tuple[str, ...]:
    return AVX2 if wanted() else NATIVE


def _whole(path: Path) -> bool:
    """Is it what was compiled? Loading a file that lost its end, or a bit, would end the process or give other bits."""
    if not path.exists():
        return False
    data = path.read_bytes()
    return hashlib.sha256(data[:-DIGEST]).digest() == data[-DIGEST:]


def _compile(command: list[str], target: Path) -> None:
    """Written aside and renamed: another process may be doing the same. Behind the code, where no loader looks, comes
    its digest: in one file they cannot get apart."""
    with tempfile.TemporaryDirectory(dir=target.parent) as aside:
        built = Path(aside) / target.name
        subprocess.run([*command, "-o", str(built), str(SOURCE)], capture_output=True, check=True, timeout=60)
        code = built.read_bytes()
        write_whole(built, code + hashlib.sha256(code).digest())
        built.rename(target)
    sync(target.parent)


def _folder() -> Path:
    """In the user's cache, theirs alone: what lies here is executed."""
    folder = cache_folder() / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    return folder


def _processor() -> bytes:
    """What `native` depends on, where a home is shared between machines."""
    names = ("vendor_id", "cpu family", "model", "stepping", "model name", "flags", "CPU part", "Features")
    return "|".join(processor().get(name, "") for name in names).encode()
