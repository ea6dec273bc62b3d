"""Overlapping clouds with enough public samples to audit a run on them in seconds."""

from pathlib import Path
from typing import Any

import numpy as np

from rebafl import Data, simulate
from rebafl.data.arrays import from_arrays
from rebafl.privacy.curves import Plan
from rebafl.runs.record import Record

from .toy import TOY_SETTINGS, quiet

CLASSES, WIDTH, EACH = 4, 24, 4000
SETTINGS: dict[str, Any] = {
    **TOY_SETTINGS,
    "rounds": 6,
    "model": {"kind": "mlp"},
    "partition": {"kind": "pathological", "clients": 8, "classes": 2, "samples": 100},
    "participation": {"kind": "bernoulli", "p": 0.8},
    "algorithm": "rebafl",
}
PLAN = Plan(ks=(1, 2, 10, 50))


def make_clouds() -> Data:
    random = np.random.default_rng(3)
    centres = random.normal(size=(CLASSES, WIDTH))
    arrays: dict[str, Any] = {}
    for part, count in (("train", EACH), ("test", 3000)):
        labels = np.repeat(np.arange(CLASSES), count)
        arrays[f"x_{part}"] = (centres[labels] + random.normal(size=(len(labels), WIDTH))).astype(np.float32)
        arrays[f"y_{part}"] = labels
    return from_arrays("clouds", arrays)


def run_clouds(out: Path, data: Data, **changes: Any) -> Record:
    return simulate({**SETTINGS, **changes}, out, data=data, say=quiet)
