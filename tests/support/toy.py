"""A problem small enough to run in milliseconds, and ways to run and read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rebafl import Classifier, Data, Run, simulate
from rebafl.base.tensors import Tensors
from rebafl.data.arrays import from_arrays
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record

CLASSES, WIDTH = 4, 6


class TinyNet(Classifier):
    def __init__(self, shape: tuple[int, ...] = (WIDTH,), classes: int = CLASSES) -> None:
        super().__init__()
        self.hidden = nn.Linear(shape[0], 5)
        self.head = nn.Linear(5, classes)

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.hidden(x))


def make_toy(each: int = 50) -> Data:
    """Four overlapping clouds."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(CLASSES, WIDTH))
    arrays: dict[str, Any] = {}
    for part, count in (("train", each), ("test", 20)):
        labels = np.repeat(np.arange(CLASSES), count)
        arrays[f"x_{part}"] = (centres[labels] + random.normal(size=(len(labels), WIDTH))).astype(np.float32)
        arrays[f"y_{part}"] = labels
    return from_arrays("toy", arrays)


TOY_SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "workers": 1,
    "partition": {"kind": "pathological", "clients": 6, "classes": 2, "samples": 20},
    "training": {"epochs": 2, "batch": 8, "lr": 0.05},
}


def run_toy(out: Path, data: Data, model: Any = TinyNet, **changes: Any) -> Run:
    """Run the small problem with some settings changed."""
    return simulate({**TOY_SETTINGS, **changes}, out, data=data, model=model, say=quiet)


def quiet(*_: Any) -> None:
    """For whatever wants to be heard: nothing is said."""


def weights(record: Record) -> Tensors:
    return record.server()["weights"]


def same_bits(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def lines(path: Path) -> list[dict[str, Any]]:
    """`rounds.jsonl` without the timings."""
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def round_line(**facts: Any) -> RoundLine:
    """A round of which only some facts matter."""
    usual: dict[str, Any] = {
        "round": 1, "active": (), "lost": (), "refused": {}, "updated": True, "diversity": None, "bytes_up": 0,
        "bytes_down": 0, "accuracy": 0.0, "loss": 0.0, "recall": (), "seconds": 0.0,
    }  # fmt: skip
    return RoundLine(**usual | facts)
