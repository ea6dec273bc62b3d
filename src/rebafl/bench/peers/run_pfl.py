"""FedAvg through Apple's pfl-research: `run_pfl.py FOLDER [processes|sequential]`.

`processes` (the default) becomes torchrun with as many workers of one thread as the workload asks for: pfl deals
the round's clients out to them and sums their updates over gloo, and each evaluates its share of the test set.
`sequential` is one process that leaves the threads to torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any, NoReturn, TextIO

import pfl
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from textbook import Net, Workload, evaluate, say
from torch import Tensor

WORKER = "worker"  # the second argument of a process that torchrun started


class PflNet(Net):
    """`Net` with the two methods that pfl asks for."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> NoReturn:
        raise AssertionError("no client is evaluated")


class Client(PyTorchTensorDataset):
    """One client in one round; each iteration over it is the next epoch of the workload."""

    def __init__(self, data: tuple[Tensor, Tensor], order: Tensor) -> None:
        super().__init__(data)
        self.epochs = iter(order)

    def iter(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.raw_data
        for index in next(self.epochs).split(batch_size):
            yield x[index], y[index]


class OnlyTraining(FederatedAveraging):
    """FedAvg that evaluates no client: pfl's does in its first round, however seldom it is asked to."""

    def get_next_central_contexts(self, *arguments: Any) -> Any:
        contexts, model, metrics = super().get_next_central_contexts(*arguments)
        if contexts is not None:
            contexts = tuple(dataclasses.replace(context, do_evaluation=False) for context in contexts)
        return contexts, model, metrics


class Rounds(TrainingProcessCallback):
    """Gives each round its clients, and evaluates the model and says so when the round is over."""

    def __init__(self, w: Workload, lines: TextIO) -> None:
        self.w, self.lines = w, lines
        self.data = {client: w.client(client) for client in w.active}
        x, y = w.test()
        mine = distributed.distribute_range(len(y))
        self.test, self.size = (x[mine.start : mine.stop], y[mine.start : mine.stop]), len(y)
        self.begin(1)

    def begin(self, round: int) -> None:
        # anew each round: where the clients cannot be shared out evenly, some workers draw more often than others
        self.round, self.clients = round, cycle(self.w.active)

    def sample(self) -> int:
        return next(self.clients)

    def dataset(self, client: int) -> Client:
        return Client(self.data[client], self.w.order(self.round, client))

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        net = model.pytorch_model
        (hits,) = distributed.all_reduce([torch.tensor([evaluate(net, self.test) * len(self.test[1]) / 100])])
        net.train()
        self.tell(round=self.round, accuracy=100 * int(hits.round()) / self.size)
        self.begin(self.round + 1)
        return False, Metrics()

    def tell(self, **facts: Any) -> None:
        if distributed.global_rank == 0:
            with contextlib.redirect_stdout(self.lines):
                say(**facts)


def keep_stdout() -> TextIO:
    """The true stdout, for the lines of the protocol; whatever a library prints from here on goes to stderr."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


def make_model(w: Workload) -> PyTorchModel:
    net = PflNet()
    net.load_state_dict(w.initial())
    net.train()
    local = partial(torch.optim.SGD, momentum=w.momentum, weight_decay=w.weight_decay)
    # pfl takes the clients' mean difference for a gradient: a rate of 1 makes the mean of their models the new model
    return PyTorchModel(net, local, torch.optim.SGD(net.parameters(), lr=1.0))


def run(w: Workload) -> None:
    rounds, model = Rounds(w, keep_stdout()), make_model(w)
    users = FederatedDataset(rounds.dataset, rounds.sample)
    sizes = NNAlgorithmParams(
        central_num_iterations=w.rounds,
        evaluation_frequency=w.rounds,
        train_cohort_size=len(w.active),
        val_cohort_size=None,
    )
    training = NNTrainHyperParams(local_batch_size=w.batch, local_num_epochs=w.epochs, local_learning_rate=w.lr)
    backend = SimulatedBackend(training_data=users, val_data=users)
    distributed.all_reduce([torch.zeros(1)])  # ready means that every worker is
    rounds.tell(peer="pfl", version=pfl.__version__)
    OnlyTraining().run(sizes, backend, model, training, callbacks=[rounds], send_metrics_to_platform=False)


def become_torchrun(folder: str, processes: int) -> NoReturn:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    where = ["--master-addr=127.0.0.1", f"--master-port={port}", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *where, __file__, folder, WORKER])


def main(folder: str, how: str = "processes") -> None:
    os.environ["PFL_PYTORCH_DEVICE"] = "cpu"  # or pfl would look for a GPU with every batch
    w = Workload(folder)
    if how == "processes":
        become_torchrun(folder, w.processes)
    if how == WORKER:
        torch.set_num_threads(1)
    run(w)


if __name__ == "__main__":
    main(*sys.argv[1:])
