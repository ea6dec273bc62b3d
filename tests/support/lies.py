"""Lies of a node: each is a function that changes a reply."""

from __future__ import annotations

import math

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord

from rebafl.federation.app.records import from_arrays, to_arrays
from support.grid import asked_by

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\nWARNING"


def put(group, name, array):
    def change(content):
        content[group][name] = array

    return change


def counts(*numbers, dtype=np.int64):
    return put("counts", "counts", Array(np.array(numbers, dtype)))


def note(**facts):
    def change(content):
        content["note"] = ConfigRecord({**content["note"], **facts})

    return change


def without(name):
    return lambda content: content.pop(name)


def add(name, record):
    def change(content):
        content[name] = record

    return change


def every(group, act):
    """All tensors of a group, changed."""

    def change(content):
        content[group] = to_arrays({name: act(tensor) for name, tensor in from_arrays(content[group]).items()})

    return change


def failure(text):
    return add("note", ConfigRecord({"failure": text}))


def npy_bytes(header: str) -> bytes:
    """What numpy.save writes for 16 bytes, with another header."""
    head = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"\0" * 16


def headed(header: str) -> Array:
    """An array that says it is four float32, with another header."""
    return Array("float32", (4,), "numpy.ndarray", npy_bytes(header))


def bias(array):
    return put("change", "head.bias", array)


def renamed(content):
    content["change"] = ArrayRecord({f"{name}_": array for name, array in content["change"].items()})


GOOD = Array(np.zeros(4, np.float32))


LARGE = Array(np.zeros(2**20, np.float32))


OVERFLOW = [2**62, 2**62, 2**62, 2**62 + 100]  # 100, as a sum of int64


CONTENT = {
    "another client's number": (note(client=1), "claims to be of client 1"),
    "another round": (note(round=1), "is of round 1"),
    "a number that is a text": (note(client="two"), "'two'"),
    "a number that is a fraction": (note(client=2.0), "2.0"),
    "a number that is a truth": (note(round=True), "True"),
    "a negative number": (note(client=-2), "-2"),
    "a number beyond 64 bits": (note(round=2**64), "not a whole number"),
    "a truth that is a number": (note(fresh=1), "not true or false"),
    "a list for a number": (note(client=[2, 2]), "[2, 2]"),
    "no note": (without("note"), "no note"),
    "an empty note": (add("note", ConfigRecord({})), "client in the note is None"),
    "a note of arrays": (add("note", ArrayRecord({})), "no note"),
    "a note of metrics": (add("note", MetricRecord({"client": 2})), "no note"),
    "no counts": (without("counts"), "no class counts"),
    "counts that are no arrays": (add("counts", ConfigRecord({})), "no record of arrays"),
    "counts twice": (put("counts", "again", GOOD), "no class counts"),
    "too many samples": (counts(9999, 0, 0, 0), "impossible class counts"),
    "ten times its samples": (counts(100, 100, 0, 0), "impossible class counts"),
    "no samples": (counts(0, 0, 0, 0), "impossible class counts"),
    "negative counts": (counts(-1, 20, 0, 0), "impossible class counts"),
    "counts that overflow": (counts(*OVERFLOW), "impossible class counts"),
    "fractions for counts": (counts(10, 10, 0, 0, dtype=np.float64), "counts"),
    "counts of another width": (counts(10, 10, 0, 0, dtype=np.int32), "counts"),
    "counts of too many classes": (counts(10, 10, 0, 0, 0), "impossible class counts"),
    "no counts at all": (counts(), "impossible class counts"),
    "no weights": (without("change"), "missing or unknown"),
    "empty weights": (add("change", ArrayRecord({})), "missing or unknown"),
    "NaN": (every("change", lambda each: each * math.nan), "NaN"),
    "infinity": (every("change", lambda each: each + math.inf), "NaN or infinity"),
    "huge weights": (every("change", lambda each: each * 0 + 1e30), "more than 1e+06"),
    "far away": (every("change", lambda each: 1000 * each), "more than 50"),
    "another shape": (bias(Array(np.zeros(3, np.float32))), "head.bias is torch.float32 (3,)"),
    "no shape": (bias(Array(np.zeros((), np.float32))), "head.bias is torch.float32 ()"),
    "another type": (bias(Array(np.zeros(4))), "torch.float64"),
    "half a type": (bias(Array(np.zeros(4, np.float16))), "torch.float16"),
    "complex numbers": (bias(Array(np.zeros(4, np.complex64))), "not used here"),
    "texts": (bias(Array(np.array(["a"] * 4))), "not used here"),
    "big-endian": (bias(Array(np.zeros(4, ">f4"))), "not used here"),
    "a stranger's weights": (put("change", "trojan", GOOD), "unknown trojan"),
    "renamed weights": (renamed, "and 5 more"),
    "a pickle": (bias(Array("float32", (4,), "cloudpickle", b"cos\nsystem")), "cloudpickle"),
    "a pickle in numpy's clothes": (bias(headed("{'descr':'|O','fortran_order':False,'shape':(4,)}")), "not used here"),
    "half an array": (bias(Array("float32", (4,), "numpy.ndarray", GOOD.data[:-3])), "bytes for shape"),
    "an array and more": (bias(Array("float32", (4,), "numpy.ndarray", GOOD.data + b"x")), "bytes for shape"),
    "a header that never ends": (bias(headed("[" * 110)), "cannot be decoded"),
    "a header that is a program": (bias(headed("__import__('os').abort()")), "cannot be decoded"),
    "two shapes": (bias(headed("{'descr':'<f4','fortran_order':False,'shape':(2,2)}")), "two things"),
    "no shared values": (without("shared"), "missing or unknown"),
    "NaN in shared values": (every("shared", lambda each: each * math.nan), "shared values: hidden"),
    "huge shared values": (every("shared", lambda each: each * 0 + 3e38), "shared values"),
    "shared values out of proportion": (every("shared", lambda each: 1000 * each), "times the median client's"),
    "an unknown record": (add("extra", ArrayRecord({})), "unknown record 'extra'"),
    "an unknown record of metrics": (add("loss", MetricRecord({"loss": 0.1})), "unknown record 'loss'"),
    "much too large": (bias(LARGE), "more than"),
    "one array under many names": (add("change", ArrayRecord({str(n): LARGE for n in range(9)})), "more than"),
    "an evil name": (put("change", ESCAPE, GOOD), "no name of a tensor"),
    "a name without end": (put("change", "x" * 10_000, GOOD), "no name of a tensor"),
    "a failure with escape sequences": (failure(ESCAPE), "\\x1b]0;owned\\x07\\x1b[2J\\u202eevil WARNING"),
    "a failure without end": (failure("x" * 10**6), "xxx"),
    "a failure that is no text": (failure(7), "not a text"),
}


def metadata(**facts):
    def change(reply):
        for name, value in facts.items():
            reply.metadata.__dict__[f"_{name}"] = value
        return reply

    return change


def crashed(code, reason):
    return lambda reply: Message(Error(code=code, reason=reason), reply_to=asked_by(reply))


METADATA = {
    "a life of NaN": (metadata(ttl=math.nan), "lasts nan s"),
    "a life without end": (metadata(ttl=math.inf), "lasts inf s"),
    "a life before its birth": (metadata(ttl=-1.0), "lasts -1.0 s"),
    "made at NaN": (metadata(created_at=math.nan), "of time nan"),
    "made at the end of time": (metadata(created_at=math.inf), "of time inf"),
    "from another node": (metadata(src_node_id=7), "came from another node"),
    "to another message": (metadata(reply_to_message_id="0" * 64), "answers another message"),
    "of another type": (metadata(message_type="query"), "of type 'query'"),
    "of an evil type": (metadata(message_type=ESCAPE), r"of type '\x1b]0;owned"),
    "of another group": (metadata(group_id="1"), "group '1'"),
    "a crash": (crashed(2, "boom"), "Flower's error 2: boom"),
    "a crash with escape sequences": (crashed(0, ESCAPE), "evil WARNING"),
    "an unknown kind of crash": (crashed(10**6, ""), "error 1000000"),
    "a pretended absence": (crashed(5, ESCAPE), "the node or its reply is gone"),
    "what Flower cannot read": (lambda reply: KeyError(ESCAPE), "cannot be read (KeyError"),
    "what Flower cannot decode": (lambda reply: UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "cannot be read"),
    "what Flower recurses in": (lambda reply: RecursionError("deep"), "cannot be read (RecursionError"),
}


def within(act):
    """A lie about the content as one about the reply."""

    def change(reply):
        act(reply.content)
        return reply

    return change


LIES = {**{name: (within(act), reason) for name, (act, reason) in CONTENT.items()}, **METADATA}


def swarm(reply):
    """More objects than any reply has."""
    reply.content["change"] = ArrayRecord({str(n): Array(np.array([n])) for n in range(1000)})
