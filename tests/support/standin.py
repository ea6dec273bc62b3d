"""A device that is not there: tensors that say they are elsewhere, compute here, and refuse to meet tensors from here.

Torch's device `meta` has no values, so a training step on it proves little. These tensors report that device and hold
values: whatever is computed from them on the processor gives the same bits, and an operation between the two sides,
which a graphics card would refuse, is an error. Indices and single numbers from here are allowed, as they are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"
INDEXED = ("aten.index.", "aten.index_put", "aten._index_put_impl", "aten.copy_", "aten._to_copy")


class Elsewhere(torch.Tensor):
    """`held` is the tensor that it stands for."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Elsewhere:
        self: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            dtype=held.dtype,
            device=torch.device(NAME),
            requires_grad=held.requires_grad,
        )
        self.held = held
        return self

    def tolist(self) -> Any:
        return self.held.tolist()

    def new_tensor(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.held.new_tensor(*args, **kwargs).to(NAME)


class Mixed(RuntimeError):
    """Tensors of both sides met."""


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    there = [x for x in tensors if isinstance(x, Elsewhere)]
    here = [x for x in tensors if not isinstance(x, Elsewhere) and x.dim() > 0]
    target = kwargs.get("device")
    if there and here and not str(func).startswith(INDEXED):
        raise Mixed(f"{func} of tensors of {len(there)} and {len(here)} on different devices")
    to_there = target is not None and torch.device(target).type == NAME
    if target is not None:
        kwargs = {**kwargs, "device": "cpu"}
    out = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
        return args[0]
    if to_there or (there and target is None):
        return tree_map(lambda x: Elsewhere(x) if isinstance(x, torch.Tensor) else x, out)
    return out


def _dispatch(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return compute(func, args, kwargs or {})


setattr(Elsewhere, "__torch_function__", torch._C._disabled_torch_function_impl)
setattr(Elsewhere, "__torch_dispatch__", classmethod(_dispatch))


def _held(x: Any) -> Any:
    return x.held if isinstance(x, Elsewhere) else x


class _Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """`torch.tensor` fills its tensor where no dispatch mode sees it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == NAME:
            return func(*args, **{**kwargs, "device": "cpu"}).to(NAME)
        return func(*args, **kwargs)


@contextmanager
def stand_in() -> Iterator[None]:
    """While it lasts, tensors that are moved to, or made on, that device hold values."""
    with _Dispatched(), _FromNumbers():
        yield
