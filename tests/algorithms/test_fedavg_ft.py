"""FedAvg with a head tuned at the server: only the head moves, on samples that no client holds."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rebafl.algorithms.interface import Training
from rebafl.base.errors import UserError
from rebafl.runs.experiment import prepare
from rebafl.runs.settings import make_settings
from support.toy import TinyNet, run_toy, same_bits


def test_fedavg_ft_tunes_the_head_only_on_samples_no_client_holds(tmp_path, toy):
    settings = {"algorithm": {"kind": "fedavg-ft", "samples": 6, "epochs": 40, "lr": 0.1}, "training": {"lr": 0.05},
                "partition": {"clients": 6, "samples": 20}}  # fmt: skip
    experiment = prepare(make_settings(settings), toy, TinyNet)
    mine = experiment.server_index
    theirs = {int(i) for client in range(6) for i in experiment.work.split.indices(client)}
    assert theirs.isdisjoint(mine.tolist())
    assert toy.y_train[torch.from_numpy(mine)].bincount().tolist() == [6] * 4
    server = experiment.first_server()
    tuned = experiment.settings.algorithm.refine(server, lambda *args: experiment.fit(1, *args)).weights
    assert torch.equal(tuned["hidden.weight"], server.weights["hidden.weight"])
    assert not torch.equal(tuned["head.weight"], server.weights["head.weight"])
    x, y = toy.inputs(toy.x_train[torch.from_numpy(mine)]), toy.y_train[torch.from_numpy(mine)]

    def loss(values):
        net = TinyNet()
        net.load_state_dict(values)
        return F.cross_entropy(net(x), y).item()

    assert loss(tuned) < loss(server.weights) - 0.1


def test_fedavg_ft_repeats_and_leaves_the_body_alone_with_random_layers(toy):
    """Dropout must not make the tuning a matter of luck, and the body's running statistics must not move."""

    class Random(TinyNet):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(6)
            self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 4))

        def features(self, x):
            return super().features(self.norm(x))

    settings = {"algorithm": {"kind": "fedavg-ft", "samples": 6}, "partition": {"clients": 6, "samples": 20}}
    experiment = prepare(make_settings(settings), toy, Random)
    first = experiment.first_server()
    tuned = [experiment.fit(1, first.weights, "head", Training()) for _ in range(2)]
    assert same_bits(*tuned)
    assert not torch.equal(tuned[0]["head.1.weight"], first.weights["head.1.weight"])
    assert all(torch.equal(tuned[0][n], first.weights[n]) for n in first.weights if not n.startswith("head."))


def test_fedavg_ft_without_enough_samples_is_refused(tmp_path, toy):
    with pytest.raises(UserError, match="that no client holds"):
        run_toy(tmp_path / "r", toy, algorithm={"kind": "fedavg-ft", "samples": 50})
