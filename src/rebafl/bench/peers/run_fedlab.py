"""FedAvg through FedLab's standalone simulation: `run_fedlab.py FOLDER`.

FedLab's own pipeline, handler, aggregation and local training loop run; what is given to them are the workload's
data in its order of samples, its clients and its optimizer.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from textbook import Net, Workload, evaluate, say
from torch import Tensor

# FedLab would have the log on stdout, which belongs to `say`; whoever comes first sets it up
logging.basicConfig()
# FedLab's data sets, unused here, import torchvision as soon as any trainer is imported; its wheels on PyPI are
# built for CUDA and do not load beside torch for the CPU. The name has to be there, and no more than that
stub = ModuleType("torchvision")
stub.transforms = ModuleType("torchvision.transforms")
sys.modules["torchvision"] = stub
import fedlab
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline

del sys.modules["torchvision"]  # torch must not take it for the real one


class Loader:
    """A client's batches in their prescribed order: each pass over it is the next epoch."""

    def __init__(self, data: tuple[Tensor, Tensor], order: Tensor, batch: int) -> None:
        self.data, self.epochs, self.batch = data, iter(order), batch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.data
        return ((x[index], y[index]) for index in next(self.epochs).split(self.batch))


class Samples(FedDataset):
    """The data of all clients; `round` says which order of samples holds."""

    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.w, self.num, self.round = w, len(w.active), 1
        self.data = {client: w.client(client) for client in w.active}

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Loader:
        return Loader(self.data[id], self.w.order(self.round, id), batch_size)


class Trainer(FedAvgSerialClientTrainer):
    def setup_optim(self, epochs: int, batch_size: int, lr: float, **options: Any) -> None:
        super().setup_optim(epochs, batch_size, lr)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, **options)

    def train(self, model_parameters: Tensor, train_loader: Loader) -> list[Tensor]:
        # one optimizer serves all clients: without this a client would go on with another's momentum
        self.optimizer.state.clear()
        return super().train(model_parameters, train_loader)


class Handler(FedAvgServerHandler):
    def setup_clients(self, active: list[int]) -> None:
        self.active = active

    def sample_clients(self) -> list[int]:
        return self.active


class Pipeline(StandalonePipeline):
    def setup_test(self, test: tuple[Tensor, Tensor]) -> None:
        self.test = test

    def evaluate(self) -> None:
        """FedLab calls it at the end of each round."""
        say(round=self.handler.round, accuracy=evaluate(self.handler.model, self.test))
        self.trainer.dataset.round = self.handler.round + 1


def main(folder: str) -> None:
    w = Workload(folder)
    net = Net()
    net.load_state_dict(w.initial())
    trainer = Trainer(net, len(w.active))
    trainer.setup_dataset(Samples(w))
    trainer.setup_optim(w.epochs, w.batch, w.lr, momentum=w.momentum, weight_decay=w.weight_decay)
    handler = Handler(net, w.rounds, sample_ratio=1.0)
    handler.setup_clients(w.active)
    pipeline = Pipeline(handler, trainer)
    pipeline.setup_test(w.test())
    say(peer="FedLab", version=fedlab.__version__)
    pipeline.main()


if __name__ == "__main__":
    main(sys.argv[1])
