"""What does a round cost besides training, and how does it grow? With clients, model size and workers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.config import Plain, write_toml
from ..models.contract import Classifier
from ..runs.environment import machine
from ..runs.settings import make_settings
from .stopwatch import OnStep, Timing, measure, warm_seconds

FEW, MANY, ACTIVE = 1_000, 100_000, 100
CURVES: dict[str, tuple[str, list[Plain]]] = {
    "registered clients (100 active, a step each)": ("clients", [{"clients": 10**n} for n in (2, 3, 4, 5)]),
    "active clients (of 10,000, a step each)": (
        "active",
        [{"clients": 10_000, "active": n} for n in (10, 30, 100, 300, 1_000)],
    ),
    "hidden units (795 parameters each; 10 active, a step each)": (
        "width",
        [{"active": 10, "width": n} for n in (128, 1_280, 12_800)],
    ),
    "workers (10 active, 500 images, 5 epochs)": (
        "workers",
        [{"active": 10, "samples": 500, "epochs": 5, "workers": n} for n in (1, 2)],
    ),
}
"""What a picture's axis says: which setting varies, and the points."""
POINTS = sum(len(points) for _, points in CURVES.values())


class Wide(Classifier):
    """One hidden layer of any width, for models of any size."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(int(torch.Size(shape).numel()), width)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.hidden(x.flatten(1)))


def wide_1280(shape: tuple[int, ...], classes: int) -> Wide:
    return Wide(shape, classes, 1_280)


def wide_12800(shape: tuple[int, ...], classes: int) -> Wide:
    return Wide(shape, classes, 12_800)


def point(
    folder: Path,
    clients: int = FEW,
    active: int = ACTIVE,
    width: int = 0,
    samples: int = 50,
    epochs: int = 1,
    workers: int = 0,
    rounds: int = 4,
    algorithm: str = "fedavg",
) -> Timing:
    """One short run: by default each client takes a single step, so that what is left is what a round costs."""
    model = {0: "fashion-cnn", 128: "mlp"}.get(width, f"{__name__}:wide_{width}")
    settings = make_settings(
        {
            "dataset": "fashion-mini",
            "model": model,
            "algorithm": algorithm,
            "rounds": rounds,
            "workers": workers,
            "partition": {"kind": "pathological", "clients": clients, "classes": 2, "samples": samples},
            "participation": {"kind": "fraction", "share": active / clients},
            "training": {"epochs": epochs, "batch": 50},
        }
    )
    file = folder / "scale.toml"
    file.write_text(write_toml(settings.plain()))
    return measure([sys.executable, "-m", "rebafl.bench.ours", str(file)], folder / "scale.log")


LARGE = 12_800  # hidden units: a model of ten million parameters
ALLOWED_MODELS = {"fedavg": 12, "scaffold": 20, "feddyn": 20}
ALLOWANCE = 500 * 10**6  # bytes besides: Python, torch, the data
ACTIVES = (20, 200)


def measure_memory(folder: Path, on_step: OnStep) -> Plain:
    """What the main process holds at the most, with few and with many active clients of a large model."""
    model = sum(tensor.nbytes for tensor in Wide((1, 28, 28), 10, LARGE).state_dict().values())
    rows: list[Plain] = []
    for algorithm, allowed in ALLOWED_MODELS.items():
        for active in ACTIVES:
            on_step(len(rows), len(ALLOWED_MODELS) * len(ACTIVES), f"{algorithm}, {active} active")
            timing = point(folder, active, active, LARGE, samples=10, rounds=2, algorithm=algorithm)
            sizes = (timing.parent - ALLOWANCE) / model
            row = {"algorithm": algorithm, "active": active, "parent_mb": timing.parent / 1e6}
            rows.append(row | {"model_sizes": sizes, "allowed": allowed, "seconds": timing.rounds})
    return {"machine": machine(), "model_mb": model / 1e6, "allowance_mb": ALLOWANCE / 1e6, "memory": rows}


def measure_growth(folder: Path, pairs: int, on_step: OnStep) -> Plain:
    """A round with many registered clients beside the same round with few, in turn.

    The model and the step are as small as possible and the rounds many: the time of training varies more from
    moment to moment than the difference that is measured.
    """
    small = partial(point, folder, width=128, samples=10, rounds=16)
    few, many = [], []
    for pair in range(pairs):
        on_step(pair, pairs + POINTS, f"{FEW:,} and {MANY:,} clients")
        few.append(small(clients=FEW))
        many.append(small(clients=MANY))
    growth = [warm_seconds(b) - warm_seconds(a) for a, b in zip(few, many, strict=True)]
    return {
        "registered": [FEW, MANY],
        "active": ACTIVE,
        "pairs": pairs,
        "round_seconds": [median(map(warm_seconds, few)), median(map(warm_seconds, many))],
        "growth_ms": median(growth) * 1000,
        "growth_ms_spread": [min(growth) * 1000, max(growth) * 1000],
        "start_seconds": median(timing.start for timing in many),
        "memory_mb": max(timing.memory for timing in many) / 2**20,
    }


def measure_curves(folder: Path, pairs: int, on_step: OnStep) -> dict[str, list[Plain]]:
    """Every point of every curve: what was chosen, the seconds of a round, the most memory."""
    measured: dict[str, list[Plain]] = {}
    for name, (axis, points) in CURVES.items():
        measured[name] = []
        for chosen in points:
            done = pairs + sum(map(len, measured.values()))
            on_step(done, pairs + POINTS, ", ".join(f"{key} {value:,}" for key, value in chosen.items()))
            timing = point(folder, **chosen)
            costs = {"seconds": warm_seconds(timing), "memory_mb": timing.memory / 2**20}
            measured[name].append({"x": chosen[axis], "settings": chosen, **costs})
    return measured


def measure_scale(folder: Path, pairs: int, on_step: OnStep) -> Plain:
    return {
        "machine": machine(),
        "growth": measure_growth(folder, pairs, on_step),
        "curves": measure_curves(folder, pairs, on_step),
    }
