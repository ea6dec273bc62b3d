"""FedAvg through Flower's simulation engine, on Ray: `run_flower.py FOLDER`.

A `ClientApp` trains one client a message in actors of one thread each; a `ServerApp` lets Flower's `FedAvg`
drive the rounds and evaluates each global model itself. Nothing is sent to or asked of the network, and
standard output carries only the lines for the stopwatch.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import cache
from typing import Any, TextIO

# both packages read some of these while they are imported; the last one makes Ray listen on the loopback only
os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")

import flwr
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from textbook import Net, Workload, evaluate, say, train

client_app = ClientApp()


@cache
def start_actor(folder: str) -> tuple[Workload, Net]:
    """What an actor keeps between messages."""
    torch.set_num_threads(1)
    return Workload(folder), Net()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    config = message.content["config"]
    w, net = start_actor(config["folder"])
    client = w.active[int(context.node_config["partition-id"])]
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = w.client(client)
    train(net, w, config["server-round"], client, (x, y))
    records = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(records), reply_to=message)


class WholeFedAvg(FedAvg):
    """Flower's FedAvg over all clients, which fails where Flower would go on without those that failed."""

    def __init__(self, clients: int) -> None:
        super().__init__(1.0, 0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.clients = clients

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        if sum(not reply.has_error() for reply in replies) != self.clients:
            raise RuntimeError(f"round {server_round} lost clients: see the log above")
        return super().aggregate_train(server_round, replies)


def make_evaluate(w: Workload, out: TextIO) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    net, test = Net(), w.test()

    def evaluate_round(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if round == 0:  # Flower also asks for the initial model; nobody else evaluates it
            return None
        net.load_state_dict(arrays.to_torch_state_dict())
        accuracy = evaluate(net, test)
        with redirect_stdout(out):
            say(round=round, accuracy=accuracy)
        return MetricRecord({"accuracy": accuracy})

    return evaluate_round


def make_server_app(w: Workload, folder: str, out: TextIO) -> ServerApp:
    app, evaluate_round, initial = ServerApp(), make_evaluate(w, out), w.initial()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < len(w.active):  # Flower would sleep a second before it looks again
            time.sleep(0.001)
        with redirect_stdout(out):
            say(peer="Flower", version=flwr.__version__)
        WholeFedAvg(len(w.active)).start(
            grid,
            ArrayRecord(initial),
            num_rounds=w.rounds,
            train_config=ConfigRecord({"folder": folder}),
            evaluate_fn=evaluate_round,
        )

    return app


def take_stdout() -> TextIO:
    """Standard output for this program alone: what others print, in whatever process, goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def main(folder: str) -> None:
    out, folder = take_stdout(), os.path.abspath(folder)
    w = Workload(folder)
    ray = {"address": "local", "num_cpus": w.processes, "include_dashboard": False, "log_to_driver": False}
    backend = {"init_args": ray, "client_resources": {"num_cpus": 1}}
    # not in $TMPDIR, which may be longer than the path of a socket can be
    with tempfile.TemporaryDirectory(prefix="fl", dir="/tmp", ignore_cleanup_errors=True) as own:
        os.environ.update(FLWR_HOME=own, RAY_TMPDIR=own)
        run_simulation(make_server_app(w, folder, out), client_app, len(w.active), backend_config=backend)


if __name__ == "__main__":
    # from the module, not from here: actors import its functions once, `__main__`'s would come anew with each message
    from run_flower import main as run

    run(sys.argv[1])
