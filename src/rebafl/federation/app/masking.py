"""What must server and nodes see the same way in a masked round? Its terms, and the messages of its stages.

A masked round begins with an order like any other, to which a call is added: who is asked, and the bounds of what is
summed. Its id follows from the run, the round and a random number, so that no two rounds have the same, not even two
tries of one. All that follows are the bytes that `rebafl.secagg` makes, wrapped by `Step`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from flwr.app import ConfigRecord, RecordDict

from ...runs.summed import Averages
from ...secagg.abort import Abort
from ...secagg.messages import Stage
from ...secagg.terms import Terms
from ...training.protections import Protections
from .records import NOTE, Malformed, Note, Order, tensors, to_arrays

PART, BYTES = "masked", "bytes"  # the record of a step, and its one array
STEP = {PART, NOTE}
NUMBER, ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Call:
    """What an order of a masked round says besides: a random number, who is asked, and the most samples of a client."""

    number: str
    asked: tuple[int, ...]
    samples: int

    @staticmethod
    def new(asked: tuple[int, ...], samples: int) -> Call:
        return Call(secrets.token_hex(16), asked, samples)

    def record(self, order: Order) -> RecordDict:
        content = order.record()
        note = content[NOTE]
        assert isinstance(note, ConfigRecord)
        note.update({"stage": Stage.ADVERTISE.value, "number": self.number, "samples": self.samples})
        note["asked"] = list(self.asked)
        return content

    def terms(self, order: Order, keys: Mapping[int, bytes], averages: Averages, protect: Protections) -> Terms:
        """Raises `Abort` if there can be no such round."""
        if unknown := sorted(set(self.asked) - keys.keys()):
            raise Abort(f"client {unknown[0]} is asked, and is not in the members file")
        asked = {client: keys[client] for client in self.asked}
        return Terms(self.id(order), asked, protect.secagg_threshold(len(self.asked)), averages.layout)

    def id(self, order: Order) -> bytes:
        return hashlib.sha256(f"rebafl round {order.run} {order.round} {self.number}".encode()).digest()


def read_call(content: RecordDict) -> Call:
    note = Note(content)
    call = Call(note.text("number"), note.numbers("asked"), note.number("samples"))
    if not NUMBER.fullmatch(call.number):
        raise Malformed(f"{call.number!r:.80} is no number of a masked round")
    return call


def stage_of(content: RecordDict) -> Stage | None:
    """Which stage of a masked round a message belongs to; None if it is of a plain one."""
    try:
        return Stage(name) if (name := Note(content).text("stage", "")) else None
    except ValueError as error:
        raise Malformed(f"an unknown stage ({error})") from None


@dataclass(frozen=True)
class Step:
    """A message of one stage to or from one client. `fresh` says, with the first answer, that its state was gone."""

    run: str
    round_id: str
    client: int
    stage: Stage
    data: bytes = b""
    fresh: bool = False

    def record(self) -> RecordDict:
        """Salted: see `Reply`."""
        salt = secrets.token_hex(16)
        content = RecordDict()
        if self.data:
            content[PART] = to_arrays({BYTES: torch.frombuffer(bytearray(self.data), dtype=torch.uint8)}, salt)
        content[NOTE] = ConfigRecord(
            {
                "run": self.run,
                "round-id": self.round_id,
                "client": self.client,
                "stage": self.stage.value,
                "fresh": self.fresh,
                "salt": salt,
            }
        )
        return content


def read_step(content: RecordDict, most_bytes: int | None = None) -> Step:
    """A step, as whoever sent it describes it; the bytes are checked by those who know the terms."""
    if unknown := sorted(content.keys() - STEP):
        raise Malformed(f"the message holds an unknown record {unknown[0]!r:.80}")
    held = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    if most_bytes is not None and held > most_bytes:  # one array may stand under many names
        raise Malformed(f"the message holds {held} bytes, more than {most_bytes}")
    note, stage = Note(content), stage_of(content)
    step = Step(note.text("run"), note.text("round-id"), note.number("client"), stage or Stage.CLOSED)
    if not NUMBER.fullmatch(step.run) or not ID.fullmatch(step.round_id):  # both become names of files
        raise Malformed("the message does not say which round it belongs to")
    part = tensors(content, PART)
    if part and (part.keys() != {BYTES} or part[BYTES].dtype != torch.uint8 or part[BYTES].dim() != 1):
        raise Malformed("the message holds something else than bytes")
    data = part[BYTES].numpy().tobytes() if part else b""
    return Step(step.run, step.round_id, step.client, step.stage, data, note.flag("fresh"))
