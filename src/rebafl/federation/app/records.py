"""What travels between server and clients? Named arrays, each group in a record of its own, and a small note.

    order (server to client)   weights, extra, note
    reply (client to server)   change, shared, counts, note

Both sides check what they receive here: an array is decoded by its own header, never unpickled, and must be
as long as it says. Whatever is not as it should be raises `Malformed`, which costs a client its update.
"""

from __future__ import annotations

import io
import json
import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy

from ...algorithms.aggregate import Upload
from ...algorithms.interface import Sent
from ...base.tensors import Tensors

NOTE = "note"
ORDER, REPLY = {"weights", "extra", NOTE}, {"change", "shared", "counts", NOTE}
LONGEST = 300  # characters of a text from a node that are shown; of a tensor's name, that are allowed
STYPE = "numpy.ndarray"  # Flower's name for what numpy.save writes
DTYPES = {
    np.dtype(name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}  # fmt: skip


class Malformed(ValueError):
    """A message that cannot be what it claims to be."""


def shown(text: str) -> str:
    """A text that a node may have made up, as one line for logs and terminals, where escape sequences act."""
    line = " ".join(text[: 4 * LONGEST].split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)[:LONGEST]


@dataclass(frozen=True)
class Order:
    """What a client is asked to do: train for this run, as this client, in this round, from what was sent.

    `state` is the round of the client's last upload that the server used, 0 if there is none: the state of
    that round is the client's own, all others are void. `inputs` and `data` (JSON, SHA-256) say how samples
    are normalised and which data set the run is about.
    """

    run: str
    client: int
    round: int
    state: int
    inputs: str
    data: str
    sent: Sent

    def record(self) -> RecordDict:
        note: dict[str, Any] = {"run": self.run, "client": self.client, "round": self.round, "state": self.state}
        if self.sent.unshared:
            note["unshared"] = list(self.sent.unshared)
        return _record(
            {"weights": self.sent.weights, "extra": self.sent.extra},
            {**note, "inputs": self.inputs, "data": self.data},
        )

    def question(self) -> RecordDict:
        """The same before there is anything to train from: which classes will the client share?"""
        return replace(self, sent=Sent({})).record()


def read_order(content: RecordDict) -> Order:
    refuse_others(content, ORDER)
    note = Note(content)
    sent = Sent(tensors(content, "weights"), tensors(content, "extra"), note.numbers("unshared"))
    run = note.text("run")
    if len(run) != 32 or not set(run) <= set("0123456789abcdef"):  # it becomes the name of a folder
        raise Malformed(f"{run!r} is no name of a run")
    client, round, state = (note.number(name) for name in ("client", "round", "state"))
    return Order(run, client, round, state, note.text("inputs"), note.text("data"), sent)


@dataclass(frozen=True)
class Reply:
    """What a client answers: its upload, and whether its state was gone, so that it started without one."""

    upload: Upload
    round: int
    fresh: bool = False

    def record(self) -> RecordDict:
        """Salted: the SuperLink refuses an object that somebody announced before with other parts, so no member
        may be able to foresee an object of another one's reply."""
        groups = {"change": self.upload.change, "shared": self.upload.shared, "counts": {"counts": self.upload.counts}}
        note = {"client": self.upload.client, "round": self.round, "fresh": self.fresh}
        return _record(groups, note, secrets.token_hex(16))


def classes_record(client: int, round: int, classes: torch.Tensor) -> RecordDict:
    """What a client answers when it is asked which classes it will share: one for each of them, zero for others."""
    return _record({"counts": {"counts": classes}}, {"client": client, "round": round}, secrets.token_hex(16))


def read_classes(content: RecordDict, client: int, round: int, classes: int) -> torch.Tensor:
    """Which classes this client said that it will share in this round."""
    refuse_others(content, {"counts", NOTE})
    note, shown = Note(content), tensors(content, "counts")
    if (note.number("client"), note.number("round")) != (client, round) or shown.keys() != {"counts"}:
        raise Malformed("the answer is not about this client's classes in this round")
    told = shown["counts"]
    if told.shape != (classes,) or told.dtype != torch.int64 or not set(told.tolist()) <= {0, 1}:
        raise Malformed("the answer does not say of each class whether it is shared")
    return told


def failure_record(reason: str) -> RecordDict:
    """What a client answers when it cannot do what it was asked to."""
    return _record({}, {"failure": reason})


def failure_of(content: RecordDict) -> str:
    """Why a client could not answer; empty if it did."""
    return Note(content).text("failure", "")


def read_reply(content: RecordDict, client: int, round: int, most_bytes: float = math.inf) -> Reply:
    """The reply of this client in this round: its key said who it is, and a reply that says otherwise lies."""
    refuse_others(content, REPLY)
    note = Note(content)
    held = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    if held > most_bytes:  # one array may stand under many names
        raise Malformed(f"the reply holds {held} bytes, more than {most_bytes}")
    claimed_client, claimed_round = note.number("client"), note.number("round")
    if claimed_client != client:
        raise Malformed(f"the reply claims to be of client {claimed_client}")
    if claimed_round != round:
        raise Malformed(f"the reply is of round {claimed_round}")
    counts = tensors(content, "counts")
    if counts.keys() != {"counts"}:
        raise Malformed("the reply holds no class counts")
    upload = Upload(client, tensors(content, "change"), counts["counts"], tensors(content, "shared"))
    return Reply(upload, round, note.flag("fresh"))


def refuse_others(content: RecordDict, known: Collection[str]) -> None:
    """A message with a record that nobody asked for is not what it claims to be."""
    if unknown := sorted(set(content) - set(known)):
        raise Malformed(f"the message holds an unknown record {unknown[0]!r:.80}")


def to_arrays(group: Mapping[str, torch.Tensor], salt: str = "") -> ArrayRecord:
    return ArrayRecord({name: _encoded(tensor, salt) for name, tensor in group.items()})


def from_arrays(record: ArrayRecord) -> Tensors:
    for name in record:
        if len(name) > LONGEST or not name.isprintable():
            raise Malformed(f"{name!r:.80} is no name of a tensor")
    return {name: _decoded(name, array) for name, array in record.items()}


def tensors(content: RecordDict, group: str) -> Tensors:
    """One group of named tensors; a group that is not there is empty."""
    if group not in content:
        return {}
    record = content[group]
    if not isinstance(record, ArrayRecord):
        raise Malformed(f"{group} is no record of arrays")
    return from_arrays(record)


class Note:
    """The plain facts of a message, by name and type."""

    def __init__(self, content: RecordDict) -> None:
        facts = content.get(NOTE)
        if not isinstance(facts, ConfigRecord):
            raise Malformed("the message has no note")
        self.facts = facts

    def number(self, name: str) -> int:
        value = self.facts.get(name)
        if type(value) is not int or not 0 <= value < 2**63:
            raise Malformed(f"{name} in the note is {value!r:.80}, not a whole number from 0 up")
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 up; empty if it is not there."""
        values = self.facts.get(name, [])
        if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 2**31 for value in values):
            raise Malformed(f"{name} in the note is {values!r:.80}, not a list of whole numbers from 0 up")
        return tuple(value for value in values if isinstance(value, int))

    def text(self, name: str, default: str | None = None) -> str:
        value = self.facts.get(name, default)
        if not isinstance(value, str):
            raise Malformed(f"{name} in the note is {value!r:.80}, not a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.facts.get(name)
        if not isinstance(value, bool):
            raise Malformed(f"{name} in the note is {value!r:.80}, not true or false")
        return value


def _record(groups: Mapping[str, Mapping[str, torch.Tensor]], note: Mapping[str, Any], salt: str = "") -> RecordDict:
    content = RecordDict({name: to_arrays(group, salt) for name, group in groups.items() if group})
    content[NOTE] = ConfigRecord({**note, "salt": salt} if salt else dict(note))
    return content


def _encoded(tensor: torch.Tensor, salt: str) -> Array:
    """What numpy.save would write; salt is a comment in the header, which all readers skip."""
    array = tensor.detach().contiguous().numpy()
    text = f"{npy.header_data_from_array_1_0(array)!r}{f' # {salt}' if salt else ''}"
    start = npy.MAGIC_LEN + 2  # bytes before the header
    text += " " * (-(start + len(text) + 1) % npy.ARRAY_ALIGN) + "\n"
    data = npy.magic(1, 0) + len(text).to_bytes(2, "little") + text.encode("latin1") + array.tobytes()
    return Array(dtype=str(array.dtype), shape=tuple(array.shape), stype=STYPE, data=data)


def _decoded(name: str, array: Array) -> torch.Tensor:
    """The array that the bytes hold, if they hold just that; nothing is allocated on a header's word."""
    if array.stype != STYPE:
        raise Malformed(f"{name} is stored as {array.stype!r:.80}, not as {STYPE}")
    stream = io.BytesIO(array.data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("an unknown version of the format")
        shape, columns_first, dtype = npy.read_array_header_1_0(stream)
    except Exception as error:  # numpy reads a header with Python's own tools, which fail in many ways
        raise Malformed(f"{name} cannot be decoded ({' '.join(str(error).split())[:120]})") from None
    if dtype not in DTYPES or dtype.byteorder not in "=|<" or columns_first:
        raise Malformed(f"{name} holds {dtype}, or in an order that is not used here")
    if any(side < 0 for side in shape) or tuple(array.shape) != shape or array.dtype != str(dtype):
        raise Malformed(f"{name} says two things about its shape or type")
    count = 1
    for side in shape:
        count *= int(side)
    start = stream.tell()
    if len(array.data) - start != count * dtype.itemsize:
        raise Malformed(f"{name} has {len(array.data) - start} bytes for shape {shape}")
    values = np.frombuffer(array.data, dtype=dtype, count=count, offset=start).reshape(shape).copy()
    return torch.from_numpy(values)


def to_json(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), sort_keys=True)
