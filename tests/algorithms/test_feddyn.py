"""FedDyn: its server state, one round by hand, and its classic mistakes, which must be noticed."""

from dataclasses import replace

import pytest

from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.fedprox import FedProx
from rebafl.algorithms.interface import Server
from support.methods import ThreeWeights, broken, check_close, federation, mean_state, one_step, three
from support.toy import run_toy, same_bits


def check_feddyn_h_is_the_mean(algorithm, toy):
    for server, states, uploads in federation(toy, algorithm):
        h = {name.removeprefix("h/"): each for name, each in server.state.items() if name.startswith("h/")}
        check_close({k: v.double() for k, v in h.items()}, mean_state(states, 5, h))
        cloud = {n: algorithm.evaluated(server)[n] - h[n] / algorithm.alpha for n in h}
        check_close(server.weights, cloud)
        assert len(uploads) == 4


def test_feddyns_h_is_the_mean_of_all_s_i(toy):
    check_feddyn_h_is_the_mean(FedDyn(alpha=0.1), toy)


def test_a_first_time_client_of_feddyn_is_one_of_fedprox(toy):
    (_, _, dyn), *_ = federation(toy, FedDyn(alpha=0.3), 1)
    (_, _, prox), *_ = federation(toy, FedProx(mu=0.3), 1)
    for a, b in zip(dyn, prox, strict=True):
        check_close(a.change, b.change)


def test_feddyn_evaluates_the_mean_and_sends_the_cloud_model(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="feddyn")
    assert all("cloud" in line.other_accuracies for line in run.rounds())
    saved = run.server()
    assert not same_bits(saved["weights"], FedDyn().evaluated(Server(saved["weights"], saved["state"])))


def test_feddyn_by_hand():
    """The same two clients; alpha = .5, m = 4, s_0 = (0, .1, 0), s_1 = 0, h = (.2, 0, 0).

    The first step has w_i = w, so it is -(g - s_i): (0, .6, -.5) and (0, -1, 1); their mean is (0, -.2, .25).
    s_i - alpha step: s_0 = (0, .1 - .3, .25) = (0, -.2, .25); s_1 = (0, .5, -.5).
    h = (.2, 0, 0) - .5/4 (0, -.4, .5) = (.2, .05, -.0625). Client mean: (1, -.2, .25).
    Cloud model: mean - h / alpha = (1 - .4, -.2 - .1, .25 + .125) = (.6, -.3, .375).
    """
    algorithm = FedDyn(alpha=0.5)
    first, s_0 = one_step(algorithm, ThreeWeights(), 1.0, 0, [1, 0], three(0.0, 0.1, 0.0))
    second, s_1 = one_step(algorithm, ThreeWeights(), 2.0, 1, [0, 1], client=1)
    check_close(s_0, three(0.0, -0.2, 0.25))
    check_close(s_1, three(0.0, 0.5, -0.5))
    state = {f"h/{k}": v for k, v in three(0.2, 0.0, 0.0).items()} | {
        f"mean/{k}": v for k, v in three(9.0, 9.0, 9.0).items()
    }
    server = algorithm.aggregate(Server(three(1.0, 0.0, 0.0), state), [first, second], 4)
    check_close(
        {k.removeprefix("h/"): v for k, v in server.state.items() if k.startswith("h/")}, three(0.2, 0.05, -0.0625)
    )
    check_close(algorithm.evaluated(server), three(1.0, -0.2, 0.25))
    check_close(server.weights, three(0.6, -0.3, 0.375))


def h_over_the_active_only(self, server, uploads, clients):
    return FedDyn.aggregate(self, server, uploads, len(uploads))


def cloud_without_h(self, server, uploads, clients):
    after = FedDyn.aggregate(self, server, uploads, clients)
    return replace(after, weights=self.evaluated(after))


@pytest.mark.parametrize("aggregate", [h_over_the_active_only, cloud_without_h])
def test_mistakes_of_feddyn_are_noticed(toy, aggregate):
    with pytest.raises(AssertionError, match=r"hidden\.weight differs"):
        check_feddyn_h_is_the_mean(broken(FedDyn(alpha=0.1), {"aggregate": aggregate}), toy)
