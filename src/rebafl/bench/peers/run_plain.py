"""FedAvg as one would write it by hand: `run_plain.py FOLDER sequential|processes [faster]`.

`sequential` leaves the threads to torch; `processes` trains clients in worker processes of one thread
each. `faster` takes this package's form of the model (channels last, pooling before activation) and leaves
all else as it is: what the model alone brings.
"""

from __future__ import annotations

import multiprocessing
import sys

import torch
import torch.nn.functional as F
from textbook import Net, Weights, Workload, average, evaluate, say, train
from torch import Tensor


class FasterNet(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(F.max_pool2d(self.conv1(x), 2))
        x = F.leaky_relu(F.max_pool2d(self.conv2(x), 2))
        return self.head(F.leaky_relu(self.hidden(x.flatten(1))))


def make_net(faster: bool) -> Net:
    return FasterNet().to(memory_format=torch.channels_last) if faster else Net()


def rows_last(x: Tensor) -> Tensor:
    """The same values with channels last in memory (`.to` would leave images of one channel as they are)."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class Trainer:
    def __init__(self, folder: str, faster: bool) -> None:
        self.w = Workload(folder)
        self.net = make_net(faster)
        self.data = {client: self.w.client(client) for client in self.w.active}
        if faster:
            self.data = {client: (rows_last(x), y) for client, (x, y) in self.data.items()}

    def __call__(self, round: int, client: int, weights: Weights) -> Weights:
        self.net.load_state_dict(weights)
        train(self.net, self.w, round, client, self.data[client])
        return {name: tensor.clone() for name, tensor in self.net.state_dict().items()}


def start_worker(folder: str, faster: bool, threads: int = 1) -> None:
    """Make this process one that trains; 0 threads leave their number to torch."""
    global trainer
    if threads:
        torch.set_num_threads(threads)
    trainer = Trainer(folder, faster)


def work(job: tuple[int, int, Weights]) -> Weights:
    return trainer(*job)


def main(folder: str, how: str, faster: bool) -> None:
    w = Workload(folder)
    if how == "processes":
        pool = multiprocessing.get_context("fork").Pool(w.processes, start_worker, (folder, faster))
        run = pool.imap_unordered  # a mean does not ask for an order
    else:
        start_worker(folder, faster, threads=0)
        run = map
    net, test, weights = make_net(faster), w.test(), w.initial()
    if faster:
        test = (rows_last(test[0]), test[1])
    say(peer="PyTorch", version=torch.__version__)
    for round in range(1, w.rounds + 1):
        weights = average(run(work, [(round, client, weights) for client in w.active]))
        net.load_state_dict(weights)
        say(round=round, accuracy=evaluate(net, test))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "faster" in sys.argv[3:])
