"""How do named tensors travel and rest? As safetensors bytes with a JSON note; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

Tensors = dict[str, Tensor]
"""Tensors by name: weights, server state, client state, what is shared."""

NOTE = "note"


def pack(groups: Mapping[str, Mapping[str, Tensor]], note: Mapping[str, Any] | None = None) -> bytes:
    """Several groups of tensors and a small JSON-able note, as one block of bytes."""
    return safetensors.torch.save(_flat(groups), metadata={NOTE: json.dumps(dict(note or {}))})


def save(groups: Mapping[str, Mapping[str, Tensor]], path: Path) -> None:
    """The same into a file, without a copy of it all in memory. Raises `OSError` if it cannot be written."""
    try:
        safetensors.torch.save_file(_flat(groups), path, metadata={NOTE: json.dumps({})})
    except safetensors.SafetensorError as error:
        raise OSError(None, str(error)) from None


def _flat(groups: Mapping[str, Mapping[str, Tensor]]) -> Tensors:
    return {
        f"{group}|{name}": tensor.detach().contiguous()
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }


def unpack(data: bytes) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """What `pack` was given. Raises `ValueError` for anything else. Empty groups do not survive."""
    try:
        flat = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        note = json.loads(header["__metadata__"][NOTE])
        groups: dict[str, Tensors] = {}
        for name, tensor in sorted(flat.items()):  # safetensors' own order differs from process to process
            group, _, short = name.partition("|")
            groups.setdefault(group, {})[short] = tensor
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a block of named tensors ({error})") from error
    return groups, note


def size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that these tensors take on the wire, names aside."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
