"""What stands in an offline file of W&B? Read by W&B's own messages, but with our own reading of their frames."""

import json
import zlib
from typing import Any

import pytest

from support.toy import lines

BLOCK, HEAD = 32768, 7


def wandb_file(path):
    (file,) = (path / "logs" / "wandb").glob("offline-run-*/*.wandb")
    return file


def wandb_records(path) -> list[Any]:
    """All records of a run's file, in which nothing may be torn or damaged."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2
    content = wandb_file(path).read_bytes()
    assert content[:7] == b":W&B\xe1\xbe\x00"
    place, found, open_record = 7, [], b""
    while place < len(content):
        room = BLOCK - place % BLOCK
        if room < HEAD:
            assert not any(content[place : place + room])
            place += room
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        data = content[place + HEAD : place + HEAD + length]
        assert len(data) == length <= room - HEAD
        assert zlib.crc32(data, zlib.crc32(bytes([kind]))) == int.from_bytes(content[place : place + 4], "little")
        assert (kind in (1, 2)) == (not open_record), "a record begins where none is open, and only there"
        open_record += data
        if kind in (1, 4):
            found.append(messages.Record.FromString(open_record))
            open_record = b""
        place += HEAD + length
    assert not open_record
    return found


def wandb_rounds(path) -> list[dict[str, Any]]:
    """The numbers of each round, in the order of the file."""
    return [
        {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def check_wandb(path) -> None:
    """Every round is there once, in order, with the record's accuracy; the file begins and ends as W&B's own do."""
    rows, found = lines(path), wandb_rounds(path)
    assert [values["round"] for values in found] == [values["_step"] for values in found]
    assert [values["round"] for values in found] == [row["round"] for row in rows]
    assert [values["accuracy"] for values in found] == pytest.approx([row["accuracy"] for row in rows])
    kinds = [record.WhichOneof("record_type") for record in wandb_records(path)]
    assert kinds == ["header", "run", *["summary", "history"] * len(rows), "exit"]
