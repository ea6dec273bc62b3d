"""What is measured? A FedAvg run of ours, written out so that any program can do exactly the same work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..base.config import Plain, write_toml
from ..base.rng import generator
from ..models.contract import weights_of
from ..runs.experiment import Experiment, prepare
from ..runs.settings import Settings, make_settings

TRACE, SETTINGS = "trace.csv", "settings.toml"
LONG = 1_000  # rounds: more than anyone measures


@dataclass(frozen=True)
class Size:
    """What may differ between the benchmark and its smoke test."""

    dataset: str = "fashion-mnist"
    clients: int = 20
    active: int = 10
    samples: int = 1000
    epochs: int = 5
    rounds: int = 3


SMALL = Size("fashion-mini", clients=6, active=4, samples=100, epochs=1)


def settings_of(size: Size, folder: Path) -> Settings:
    """The run's settings in this package; the same first `active` clients take part in every round."""
    chosen: Plain = {
        "dataset": size.dataset,
        "model": "fashion-cnn",
        "algorithm": "fedavg",
        "rounds": size.rounds,
        "partition": {"kind": "pathological", "clients": size.clients, "classes": 2, "samples": size.samples},
        "participation": {"kind": "trace", "path": str(folder / TRACE)},
        "training": {"epochs": size.epochs, "batch": 50, "lr": 0.01, "momentum": 0.5, "weight_decay": 5e-4},
    }
    return make_settings(chosen)


def write(size: Size, folder: Path, processes: int) -> Settings:
    """Everything a peer needs, as `peers/textbook.py` describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{client},1,{LONG}" for client in range(size.active)]
    (folder / TRACE).write_text("\n".join(["client,first,last", *lines]) + "\n")
    settings = settings_of(size, folder)
    facts = {
        "rounds": size.rounds,
        "active": list(range(size.active)),
        "processes": processes,
        **{name: getattr(settings.training, name) for name in ("epochs", "batch", "lr", "momentum", "weight_decay")},
    }
    (folder / "workload.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / SETTINGS).write_text(write_toml(settings.plain()))
    for name, array in _arrays(prepare(settings), size).items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return settings


def _arrays(experiment: Experiment, size: Size) -> dict[str, np.ndarray]:
    work, seed = experiment.work, experiment.settings.seed
    index = np.stack([work.split.indices(client) for client in range(size.clients)])
    orders = [
        [_orders(seed, round, client, size) for client in range(size.clients)] for round in range(1, size.rounds + 1)
    ]
    flat = torch.from_numpy(index.ravel())
    images = work.data.inputs(work.data.x_train[flat]).contiguous()
    return {
        "x": images.reshape(size.clients, size.samples, *images.shape[1:]).numpy(),
        "y": work.data.y_train[flat].reshape(index.shape).numpy(),
        "x_test": work.data.inputs(work.data.x_test).contiguous().numpy(),
        "y_test": work.data.y_test.numpy(),
        "order": np.array(orders),
        **{f"initial.{name}": tensor.contiguous().numpy() for name, tensor in weights_of(work.make_net()).items()},
    }


def _orders(seed: int, round: int, client: int, size: Size) -> list[np.ndarray]:
    """The permutations that this client's training loop will draw in this round."""
    random = generator(seed, "client", round, client)
    return [random.permutation(size.samples) for _ in range(size.epochs)]
