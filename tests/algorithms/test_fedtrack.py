"""FedTrack: what is left when its parts are off, its smoothed step by hand, and the mistakes that must be noticed."""

import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms import KINDS
from rebafl.algorithms.aggregate import Means
from rebafl.algorithms.fedtrack import FILLED, LENGTH, MEANS, RESULT, SCATTER, VELOCITY, FedTrack
from rebafl.algorithms.interface import Server, Task
from rebafl.base.tensors import size
from rebafl.runs.experiment import prepare
from support.methods import broken, check_close, federation, make_client
from support.toy import TinyNet, run_toy, same_bits, weights

OFF = {"kind": "fedtrack", "smooth": False, "readout": False}


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ({"eps": 0.01, "mu": 0.1}, "rebafl"),
        ({"eps": 0.3, "mu": 0.0}, {"kind": "rebafl", "eps": 0.3, "mu": 0.0}),
        ({"eps": 1.0, "mu": 0.0}, "fedavg"),
    ],
)
def test_without_its_parts_it_is_rebafl_or_fedavg(tmp_path, toy, own, other):
    off, plain = run_toy(tmp_path / "o", toy, algorithm=OFF | own), run_toy(tmp_path / "p", toy, algorithm=other)
    assert same_bits(weights(off), weights(plain))
    assert [a.accuracy for a in off.rounds()] == [b.accuracy for b in plain.rounds()]


def test_prototypes_can_be_added(tmp_path, toy):
    """Tracked means and ReBaFL's prototypes are of different models, and do not get in each other's way."""
    added = run_toy(tmp_path / "a", toy, algorithm={"kind": "fedtrack", "mu": 0.5})
    bare = run_toy(tmp_path / "b", toy, algorithm="fedtrack")
    assert not same_bits(weights(added), weights(bare))
    assert "prototypes" in added.server()["state"]
    assert "prototypes" not in bare.server()["state"]


@pytest.mark.parametrize(
    "protect", [{"noise": 1.0, "clip": 3.0}, {"update_noise": 1.0, "update_clip": 1.0}, {"min_count": 3}]
)
def test_protections_that_cannot_cover_its_statistics_are_refused(tmp_path, toy, protect):
    with pytest.raises(UserError, match=r"cannot cover means and scatter, which fedtrack shares.*secagg"):
        run_toy(tmp_path / "a", toy, algorithm="fedtrack", protect=protect)
    allowed = run_toy(tmp_path / "b", toy, algorithm={"kind": "fedtrack", "readout": False}, protect=protect)
    assert allowed.rounds()


def test_the_readout_does_not_change_training(tmp_path, toy):
    runs = [run_toy(tmp_path / str(on), toy, algorithm={"kind": "fedtrack", "readout": on}) for on in (True, False)]
    assert same_bits(*(run.server()["weights"] for run in runs))
    assert [a.accuracy for a in runs[0].rounds()] != [b.accuracy for b in runs[1].rounds()]


def check_steps(algorithm, length=100.0, steps=(2.0, 14 / 3)):
    """Two of four clients a round, changes of 1 and then 3, speed 2.

    The window: v = 1/2, filled 1/2, so the step is 2; then v = 1/4 + 3/2, filled 3/4, so it is 2 * 7/4 / (3/4) = 14/3.
    """
    weight = {"head.weight": torch.zeros(1, 1).double()}
    zero = torch.zeros(1).double()
    server = Server(weight, {FILLED: zero, LENGTH: zero, VELOCITY + "head.weight": torch.zeros(1, 1).double()})
    for change, expected in ((1.0, steps[0]), (3.0, sum(steps))):
        shared = {LENGTH: torch.tensor([length]).double()}
        means = Means({"head.weight": torch.full((1, 1), change).double()}, shared, torch.tensor([5]), 2)
        server = algorithm.next_server(server, means, 4)
        check_close(server.weights, {"head.weight": torch.full((1, 1), expected, dtype=torch.float64)})


def test_a_step_is_no_longer_than_the_clients_changes():
    """Clients that agree leave nothing to gain from a longer step: their changes are as long as their mean."""
    check_steps(FedTrack(readout=False, speed=2.0), length=1.5, steps=(1.5, 1.5))


def test_smoothed_steps_by_hand():
    check_steps(FedTrack(readout=False, speed=2.0))


def test_a_step_without_the_window_is_noticed():
    wrong = broken(FedTrack(readout=False, speed=2.0), {"next_server": lambda self, server, means, clients: server})
    with pytest.raises(AssertionError, match="differs"):
        check_steps(wrong)


def test_what_counts_is_the_model_that_was_sent_with_another_head(toy):
    algorithm = FedTrack()
    sent: dict[str, torch.Tensor] = {}
    for server, _, uploads in federation(toy, algorithm):
        result = algorithm.evaluated(server)
        if sent:
            extractor = {name: w for name, w in result.items() if not name.startswith("head")}
            check_close(extractor, {name: sent[name] for name in extractor})
            assert not torch.allclose(result["head.weight"], sent["head.weight"])
        assert {MEANS, SCATTER, LENGTH} == uploads[0].shared.keys()
        sent = server.weights


def test_the_statistics_are_of_the_received_model(toy):
    """Were they of the trained one, clients of one round would speak of different features."""
    algorithm = FedTrack()
    _, (server, _, _), (_, _, uploads), *_ = federation(toy, algorithm)
    net = TinyNet().double()
    net.load_state_dict(server.weights)
    for upload in uploads:
        own = make_client(toy, upload.client, None, None)
        features = net.features(own.inputs).detach()
        held = int(own.labels[0])
        check_close({"": upload.shared[MEANS][held]}, {"": features[own.labels == held].mean(0)})


def test_uploads_stay_within_a_twentieth_of_fedavgs_bytes():
    """With the paper's network for Fashion-MNIST, both ways together."""
    experiment = prepare(make_settings({"dataset": "fashion-mini", "algorithm": "fedtrack"}), say=lambda _: None)
    server = experiment.first_server()
    algorithm = experiment.settings.algorithm
    extra = size(algorithm.shared_template(server)) + size(algorithm.broadcast(server))
    assert 0 < extra <= 0.05 * 2 * size(server.weights)


def test_a_head_that_is_not_linear_is_refused():
    net = TinyNet()
    net.head = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 4))
    with pytest.raises(UserError, match=r"one linear layer.*readout=false"):
        FedTrack().server_state(net, Task(4, 5, 6))
    assert RESULT not in str(FedTrack(readout=False).server_state(net, Task(4, 5, 6)).keys())


def test_it_can_be_summed_behind_masks(tmp_path, toy):
    summed = run_toy(tmp_path / "s", toy, algorithm="fedtrack", protect={"secagg": True})
    plain = run_toy(tmp_path / "p", toy, algorithm="fedtrack")
    check_close(weights(summed), weights(plain), 1e-3)
    assert KINDS["fedtrack"]().needs_each_upload() is False
