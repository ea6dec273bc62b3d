"""A run on images, and an algorithm that harms its worker."""

import os
import signal
from pathlib import Path

import rebafl
from rebafl import parameters
from rebafl.algorithms.interface import Algorithm


def run_images(out, workers, **changes):
    """Convolutions and channels_last, where memory layout could change bits."""
    settings = {
        "dataset": "fashion-mini", "rounds": 2, "workers": workers,
        "partition": {"clients": 5, "samples": 60}, "training": {"epochs": 1, "batch": 20}, **changes,
    }  # fmt: skip
    return rebafl.simulate(settings, out, say=lambda text: None)


@parameters
class Sabotage(Algorithm):
    """FedAvg, but client 1 does something to its worker."""

    name = "sabotage"
    deed: str = "raise"
    place: str = ""

    def start(self, net, sent, client):
        if client.id == 1:
            self.act()
        return super().start(net, sent, client)

    def act(self):
        marker = Path(self.place) / "done"
        if self.deed == "raise":
            raise ZeroDivisionError("on purpose")
        if self.deed == "die" or not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
