"""The workload, its model and its training loop as papers write them; all that the peers share.

Only torch and numpy are needed, so that it runs in a peer's own environment. A peer is a program
`run_NAME.py FOLDER` that prints one JSON line when it is ready and one after each round; who started it
holds the stopwatch. `FOLDER` holds `workload.json`, the clients' images and labels (normalised float32,
NCHW), the test set, the initial weights, and the order in which each client takes its samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Weights = dict[str, Tensor]


class Net(nn.Module):
    """The paper's CNN for Fashion-MNIST, activation before pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        self.hidden = nn.Linear(800, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.leaky_relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.leaky_relu(self.conv2(x)), 2)
        return self.head(F.leaky_relu(self.hidden(x.flatten(1))))


class Workload(SimpleNamespace):
    """`rounds`, `active` (client numbers), `epochs`, `batch`, `lr`, `momentum`, `weight_decay`, `processes`."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        super().__init__(**json.loads((folder / "workload.json").read_text()))
        # read where they are needed, and mapped: processes share the pages instead of copying them
        self.arrays = {path.stem: np.load(path, mmap_mode="c") for path in folder.glob("*.npy")}

    def client(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images and labels."""
        return torch.from_numpy(self.arrays["x"][client]), torch.from_numpy(self.arrays["y"][client])

    def order(self, round: int, client: int) -> Tensor:
        """The order of a client's samples: one row an epoch. Rounds count from 1."""
        return torch.from_numpy(self.arrays["order"][round - 1, client])

    def test(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.arrays["x_test"]), torch.from_numpy(self.arrays["y_test"])

    def initial(self) -> Weights:
        """The initial weights, by their names in `Net`."""
        return {
            name.removeprefix("initial."): torch.from_numpy(np.array(array))
            for name, array in self.arrays.items()
            if name.startswith("initial.")
        }


def train(net: nn.Module, w: Workload, round: int, client: int, data: tuple[Tensor, Tensor] | None = None) -> None:
    """One client's round, in place."""
    x, y = data or w.client(client)
    optimizer = torch.optim.SGD(net.parameters(), lr=w.lr, momentum=w.momentum, weight_decay=w.weight_decay)
    net.train()
    for epoch in w.order(round, client):
        for index in epoch.split(w.batch):
            optimizer.zero_grad()
            F.cross_entropy(net(x[index]), y[index]).backward()
            optimizer.step()


def average(models: Iterable[Mapping[str, Tensor]]) -> Weights:
    """The mean of all models: here every client has as many samples as any other."""
    models = list(models)
    return {name: torch.stack([model[name] for model in models]).mean(0) for name in models[0]}


def evaluate(net: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """Accuracy in percent."""
    x, y = test
    net.eval()
    with torch.no_grad():
        hits = sum(int((net(a).argmax(1) == b).sum()) for a, b in zip(x.split(500), y.split(500), strict=True))
    return 100 * hits / len(y)


def say(**facts: Any) -> None:
    """One JSON line to whoever holds the stopwatch."""
    print(json.dumps(facts), flush=True)
