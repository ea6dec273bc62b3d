"""FedAvg through Apple's pfl-research: `run_pfl.py FOLDER [processes|sequential]`.

`processes` (the default) becomes torchrun with as many workers of one thread as the workload asks for: pfl deals
the round's clients out to them, sums their updates with gloo, and each evaluates its share of the test set.
`sequential` is one process that leaves the threads to torch.
"""

from __future__ import annotations

import os
import sys

# before pfl is imported: it would look for a GPU anew with every batch
os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any, NoReturn, TextIO

import torch
import torch.nn.functional as F
from textbook import Net, Workload, evaluate, say
from torch import Tensor

WORKER = "worker"  # the second argument of a process that torchrun started


def keep_stdout() -> TextIO:
    """The true stdout, for the lines of the protocol; what gloo or pfl print goes to stderr from here on."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


def become_torchrun(folder: str, processes: int) -> NoReturn:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    where = ["--master-addr=127.0.0.1", f"--master-port={port}", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *where, __file__, folder, WORKER])


def run(folder: str, lines: TextIO) -> None:
    # importing it joins the workers' group, so the process that becomes torchrun must not
    import pfl
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

    class PflNet(Net):
        """`Net` with the two methods that pfl asks for."""

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(self(x), y)

        def metrics(self, x: Tensor, y: Tensor) -> NoReturn:
            raise AssertionError("users are not evaluated")

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
        """pfl evaluates each user before and after its training in the first round, whatever the frequency."""

        def get_next_central_contexts(self, *arguments: Any) -> Any:
            contexts, model, metrics = super().get_next_central_contexts(*arguments)
            if contexts is not None:
                contexts = tuple(dataclasses.replace(context, do_evaluation=False) for context in contexts)
            return contexts, model, metrics

    class Rounds(TrainingProcessCallback):
        """Samples the round's clients in their order, and evaluates the model when the round is over."""

        def __init__(self, w: Workload) -> None:
            self.w = w
            self.data = {client: w.client(client) for client in w.active}
            x, y = w.test()
            mine = distributed.distribute_range(len(y))
            self.test, self.size = (x[mine.start : mine.stop], y[mine.start : mine.stop]), len(y)
            self.begin(1)

        def begin(self, round: int) -> None:
            # anew each round: where the clients do not divide evenly, pfl's workers draw unequally often
            self.round, self.clients = round, cycle(self.w.active)

        def sample(self) -> int:
            return next(self.clients)

        def dataset(self, client: int) -> Client:
            return Client(self.data[client], self.w.order(self.round, client))

        def after_central_iteration(self, _: Metrics, model: PyTorchModel, **facts: int) -> tuple[bool, Metrics]:
            hits = torch.tensor([evaluate(model.pytorch_model, self.test) * len(self.test[1]) / 100])
            (hits,) = distributed.all_reduce([hits])
            model.pytorch_model.train()
            tell(round=self.round, accuracy=100 * int(hits.round()) / self.size)
            self.begin(self.round + 1)
            return False, Metrics()

    def tell(**facts: Any) -> None:
        if distributed.global_rank == 0:
            with contextlib.redirect_stdout(lines):
                say(**facts)

    w = Workload(folder)
    net = PflNet()
    net.load_state_dict(w.initial())
    local = partial(torch.optim.SGD, momentum=w.momentum, weight_decay=w.weight_decay)
    model = PyTorchModel(net, local, torch.optim.SGD(net.parameters(), lr=1.0))
    rounds = Rounds(w)
    users = FederatedDataset(rounds.dataset, rounds.sample)
    tell(peer="pfl", version=pfl.__version__)
    OnlyTraining().run(
        NNAlgorithmParams(
            central_num_iterations=w.rounds,
            evaluation_frequency=w.rounds,
            train_cohort_size=len(w.active),
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        model,
        NNTrainHyperParams(local_batch_size=w.batch, local_num_epochs=w.epochs, local_learning_rate=w.lr),
        callbacks=[rounds],
        send_metrics_to_platform=False,
    )


def main(folder: str, how: str = "processes") -> None:
    if how == "processes":
        become_torchrun(folder, Workload(folder).processes)
    if how == WORKER:
        torch.set_num_threads(1)
    run(folder, keep_stdout())


if __name__ == "__main__":
    main(*sys.argv[1:])
