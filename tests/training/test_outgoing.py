"""An upload can be changed on its way out of a client, and the next state follows what was really sent."""

from dataclasses import replace

import pytest
import torch

from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.interface import Sent, Server, Task
from rebafl.algorithms.scaffold import Scaffold
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from rebafl.runs.experiment import prepare
from rebafl.runs.settings import make_settings
from support.methods import broken, check_close, federation, mean_state
from support.toy import TOY_SETTINGS, TinyNet


def rounded(upload, client):
    """What a coarse quantisation leaves: neither of the two groups is what the client computed."""
    change, shared = ({n: (t * 64).round() / 64 for n, t in part.items()} for part in (upload.change, upload.shared))
    return replace(upload, change=change, shared=shared)


def check_c_is_the_mean(algorithm, toy):
    for server, states, _ in federation(toy, algorithm, outgoing=rounded):
        check_close({k: v.double() for k, v in server.state.items()}, mean_state(states, 5, server.state))


def check_h_is_the_mean(algorithm, toy):
    for server, states, _ in federation(toy, algorithm, outgoing=rounded):
        h = {name.removeprefix("h/"): value for name, value in server.state.items() if name.startswith("h/")}
        check_close({k: v.double() for k, v in h.items()}, mean_state(states, 5, h))


def test_scaffolds_c_stays_the_mean_of_all_c_i_when_uploads_are_rounded(toy):
    check_c_is_the_mean(Scaffold(), toy)


def test_feddyns_h_stays_the_mean_of_all_s_i_when_uploads_are_rounded(toy):
    check_h_is_the_mean(FedDyn(alpha=0.1), toy)


def variate_as_computed(self, net, context, upload, steps):
    return self.next_variate(net, context, steps)


def dual_as_computed(self, net, context, upload, steps):
    exact = self.upload(net, context, steps)
    return FedDyn.next_state(self, net, context, exact, steps)


def test_a_state_that_ignores_what_was_sent_is_noticed(toy):
    with pytest.raises(AssertionError, match="differs"):
        check_c_is_the_mean(broken(Scaffold(), {"next_state": variate_as_computed}), toy)
    with pytest.raises(AssertionError, match="differs"):
        check_h_is_the_mean(broken(FedDyn(alpha=0.1), {"next_state": dual_as_computed}), toy)


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "moon", "rebafl"])
def test_every_upload_of_a_run_passes_there(toy, algorithm):
    """What leaves `Work.train`, which every engine and every node calls, is what came out."""
    experiment = prepare(make_settings(TOY_SETTINGS, {"algorithm": algorithm}), toy, TinyNet, say=lambda text: None)
    server = experiment.first_server()
    sent = Sent(server.weights, experiment.settings.algorithm.broadcast(server))
    seen = []

    def marked(upload, client):
        seen.append(client.id)
        return rounded(upload, client)

    work = replace(experiment.work, outgoing=marked)
    upload, _ = work.train(work.make_net(), sent, 3, 1, None)
    plain, _ = experiment.work.train(work.make_net(), sent, 3, 1, None)
    assert seen == [3]
    assert all(torch.equal(upload.change[n], (t * 64).round() / 64) for n, t in plain.change.items())
    assert any(not torch.equal(upload.change[n], t) for n, t in plain.change.items())


def test_with_nothing_to_pass_through_scaffolds_state_is_the_variate_itself(toy):
    """Not c_i plus its rounded change, which may differ in the last bit: results of version 0.1 would change."""
    with torch_stream(0, "model"):
        net = TinyNet()
    algorithm = Scaffold()
    server = Server(weights_of(net), algorithm.server_state(net, Task(4, 5, 6)))
    experiment = prepare(make_settings(TOY_SETTINGS, {"algorithm": "scaffold"}), toy, TinyNet, say=lambda text: None)
    state, different = None, False
    for round in range(1, 4):
        sent = Sent(server.weights, {n: torch.full_like(c, 0.01 * round) for n, c in server.state.items()})
        before = state or {n: torch.zeros_like(c) for n, c in server.state.items()}
        upload, state = experiment.work.train(net, sent, 0, round, state)
        for name, variate in state.items():
            assert torch.equal(variate - before[name], upload.shared[name])
            different |= not torch.equal(before[name] + upload.shared[name], variate)
    assert different, "the two ways must be told apart here"
