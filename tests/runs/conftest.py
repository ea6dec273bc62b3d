"""An algorithm with client state that matters, by name."""

import pytest
import torch

from rebafl import parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm


@parameters
class Counting(Algorithm):
    """FedAvg whose clients count their rounds, and let the count matter."""

    name = "counting"

    def correct(self, net, context):
        for parameter in net.parameters():
            parameter.grad.mul_(1 + self.count(context))

    def count(self, context):
        return int(context.client.state["n"]) if context.client.state else 0

    def next_state(self, net, context, upload, steps):
        return {"n": torch.tensor(self.count(context) + 1)}

    def client_state_template(self, server):
        return {"n": torch.tensor(0)}


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.setitem(KINDS, "counting", Counting)
