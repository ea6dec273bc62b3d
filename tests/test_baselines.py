"""Every baseline: its identities, one round by hand on three weights, and its classic mistake, which must be noticed.

Each identity is a function of the algorithm, so that it can be shown to fail for a version broken on purpose.
"""

import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import TinyNet, run_toy, same_bits, weights
from rebafl import Classifier, parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.aggregate import Upload, weighted_mean
from rebafl.algorithms.fedbabu import FedBABU
from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.fedlc import FedLC
from rebafl.algorithms.fedprox import FedProx
from rebafl.algorithms.fedrs import FedRS
from rebafl.algorithms.interface import Algorithm, Batch, Client, Context, Sent, Server, Task, Training, gradients
from rebafl.algorithms.label_smoothing import LabelSmoothing
from rebafl.algorithms.losses import count_margin
from rebafl.algorithms.moon import Moon
from rebafl.algorithms.scaffold import Scaffold
from rebafl.base.rng import generator, torch_stream
from rebafl.models.contract import weights_of
from rebafl.training.loop import train

ROUNDS = 4


# --- a federation in float64, without engine or record, to follow state exactly ------------------------------------


def make_device(toy, client, state, training, balanced=False):
    """Six clients with two classes each; `balanced`: all four classes, equally many."""
    per = 5 if balanced else 10
    held = range(4) if balanced else ((client % 4), (client + 1) % 4)
    index = torch.cat([torch.nonzero(toy.y_train == c).flatten()[per * client : per * client + per] for c in held])
    labels = toy.y_train[index]
    counts = labels.bincount(minlength=4)
    inputs = toy.inputs(toy.x_train[index]).double()
    return Client(
        client, inputs, labels, counts, torch.zeros(6), training, generator(0, "t", 0, client), generator(0, "a"), state
    )


def federation(toy, algorithm, rounds=ROUNDS, clients=5, training=None, lost=(), balanced=False):
    """Yield (server, client states, uploads) after each round; client r mod 5 is away in round r."""
    training = training or Training(epochs=2, batch=7, lr=0.05, momentum=0.5, weight_decay=1e-3)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    server = Server(weights_of(net), algorithm.server_state(net, Task(4, 5, clients)))
    states = {}
    for round in range(rounds):
        sent = Sent(server.weights, algorithm.broadcast(server))
        uploads = []
        for client in range(clients):
            if client == round % clients:
                continue
            own = make_device(toy, client, states.get(client), training, balanced)
            upload, after = train(net, algorithm, sent, own)
            if (round, client) not in lost:
                uploads.append(upload)
                states[client] = after
        server = algorithm.aggregate(server, uploads, clients)
        yield server, dict(states), uploads


def check_close(a, b, tolerance=1e-10):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=0, atol=tolerance), name


def mean_state(states, clients, like):
    """The mean over all clients; those never seen count as zero."""
    zero = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    return weighted_mean([states.get(client, zero) for client in range(clients)], [1.0] * clients)


# --- bit for bit, over whole runs ---------------------------------------------------------------------------------


NEUTRAL = {
    "fedprox": {"mu": 0.0},
    "moon": {"mu": 0.0},
    "fedrs": {"alpha": 1.0},
    "label-smoothing": {"smoothing": 0.0},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_with_its_neutral_parameter_it_is_fedavg(tmp_path, toy, name):
    neutral = run_toy(tmp_path / "n", toy, algorithm={"kind": name, **NEUTRAL[name]})
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg")
    active = run_toy(tmp_path / "a", toy, algorithm=name)
    assert same_bits(weights(neutral), weights(plain))
    assert not same_bits(weights(active), weights(plain))


@pytest.mark.parametrize("name", ["fedlc", "fedrs", "bsm-fedavg"])
def test_with_uniform_counts_it_is_fedavg(tmp_path, toy, name):
    every = {"kind": "pathological", "clients": 6, "classes": 4, "samples": 20}
    found = [weights(run_toy(tmp_path / n, toy, partition=every, algorithm=n)) for n in (name, "fedavg")]
    assert same_bits(*found)


def test_fedbabus_head_never_moves_and_is_not_uploaded(tmp_path, toy):
    short, long = (run_toy(tmp_path / str(n), toy, algorithm="fedbabu", rounds=n) for n in (1, 4))
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg")
    assert torch.equal(weights(short)["head.weight"], weights(long)["head.weight"])
    assert not torch.equal(weights(short)["hidden.weight"], weights(long)["hidden.weight"])
    head = (5 * 4 + 4) * 4
    for babu, avg in zip(long.rounds(), plain.rounds(), strict=False):
        assert avg["bytes_up"] - babu["bytes_up"] == head * len(babu["active"])


@pytest.mark.parametrize("name", sorted(KINDS))
def test_any_number_of_workers_and_a_resume_give_the_same_bits(tmp_path, toy, name):
    free = {"kind": "pathological", "clients": 6, "classes": 2, "samples": 10}
    few = {"samples": 5} if name == "fedavg-ft" else {}
    changes = {"algorithm": {"kind": name, **few}, "partition": free, "rounds": 4}
    whole = run_toy(tmp_path / "w", toy, workers=2, **changes)
    run_toy(tmp_path / "r", toy, workers=1, **{**changes, "rounds": 2})
    resumed = run_toy(tmp_path / "r", toy, workers=1, **changes)
    assert same_bits(weights(whole), weights(resumed))
    assert [a["accuracy"] for a in whole.rounds()] == [b["accuracy"] for b in resumed.rounds()]
    states = [{p.name: p.read_bytes() for p in r.checkpoint.glob("client-*")} for r in (whole, resumed)]
    assert states[0] == states[1]


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "moon"])
@pytest.mark.parametrize("dropout", ["away", "lost"])
def test_state_moves_only_with_an_upload_that_was_taken(tmp_path, toy, name, dropout):
    before = {}
    for rounds in (1, 2, 3):
        run = run_toy(tmp_path / "r", toy, algorithm=name, rounds=rounds, dropout=dropout)
        line = run.rounds()[-1]
        files = {int(p.name.split("-")[1]): p.read_bytes() for p in run.checkpoint.glob("client-*")}
        changed = {client for client in files if files[client] != before.get(client)}
        assert changed == set(line["active"]) - set(line["lost"])
        before = files


# --- to 1e-10, in float64 -------------------------------------------------------------------------------------------


def check_fedprox_gradient(algorithm, toy):
    """The local step is that of loss + mu/2 |w - w0|², with the term added once."""
    training = Training(epochs=3, batch=100, lr=0.1, momentum=0.0, weight_decay=0.0)
    (_, _, uploads), *_ = federation(toy, algorithm, 1, training=training)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    start = weights_of(net)
    own = make_device(toy, 1, None, training)
    for _ in range(3):
        net.zero_grad()
        distance = sum((p - start[name]).square().sum() for name, p in net.named_parameters())
        (F.cross_entropy(net(own.inputs), own.labels) + algorithm.mu / 2 * distance).backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
    check_close(uploads[0].change, {name: p.detach() - start[name] for name, p in net.named_parameters()})


def check_scaffold_c_is_the_mean(algorithm, toy):
    for server, states, _ in federation(toy, algorithm):
        check_close({k: v.double() for k, v in server.state.items()}, mean_state(states, 5, server.state))


def check_scaffold_corrects(algorithm, toy):
    """In the second round the path is that of g + c - c_i; without the write-back of c_i it is not."""
    training = Training(epochs=1, batch=100, lr=0.1, momentum=0.0, weight_decay=0.0)
    (first, states, _), (_, _, uploads) = federation(toy, algorithm, 2, training=training)
    with torch_stream(0, "model"):
        net = TinyNet().double()
    client = uploads[-1].client
    for name, p in net.named_parameters():
        p.data = first.weights[name].clone()
    own = make_device(toy, client, None, training)
    F.cross_entropy(net(own.inputs), own.labels).backward()
    by_hand = {n: -0.1 * (p.grad + first.state[n] - states[client][n]) for n, p in net.named_parameters()}
    assert any(states[client][name].abs().sum() > 0 for name in states[client])
    check_close(uploads[-1].change, by_hand)


def check_feddyn_h_is_the_mean(algorithm, toy):
    for server, states, uploads in federation(toy, algorithm):
        h = {name.removeprefix("h/"): each for name, each in server.state.items() if name.startswith("h/")}
        check_close({k: v.double() for k, v in h.items()}, mean_state(states, 5, h))
        cloud = {n: algorithm.evaluated(server)[n] - h[n] / algorithm.alpha for n in h}
        check_close(server.weights, cloud)
        assert len(uploads) == 4


def check_head_stays(algorithm, toy):
    with torch_stream(0, "model"):
        start = weights_of(TinyNet().double())
    for server, _, uploads in federation(toy, algorithm, 2):
        assert torch.equal(server.weights["head.weight"], start["head.weight"])
        assert torch.equal(server.weights["head.bias"], start["head.bias"])
        assert "head.weight" not in uploads[0].change


def test_fedprox_adds_its_term_once(toy):
    check_fedprox_gradient(FedProx(mu=0.7), toy)


def test_scaffolds_first_round_is_fedavg(toy):
    (scaffold, _, _), *_ = federation(toy, Scaffold(), 1)
    (fedavg, _, _), *_ = federation(toy, KINDS["fedavg"](), 1)
    check_close(scaffold.weights, fedavg.weights)


def test_scaffolds_c_is_the_mean_of_all_c_i(toy):
    check_scaffold_c_is_the_mean(Scaffold(), toy)


def test_scaffold_corrects_by_c_minus_c_i(toy):
    check_scaffold_corrects(Scaffold(), toy)


def test_scaffolds_mean_gradient_is_exact_for_a_constant_gradient():
    """With momentum 0.5, four steps of a constant gradient of one move a weight by lr (1 + 1.5 + 1.75 + 1.875)."""
    training = Training(lr=0.1, momentum=0.5)
    assert Scaffold().path_length(training, 4) == pytest.approx(0.1 * 6.125)
    assert Scaffold(gradient="raw").path_length(training, 4) == pytest.approx(0.4)


def test_feddyns_h_is_the_mean_of_all_s_i(toy):
    check_feddyn_h_is_the_mean(FedDyn(alpha=0.1), toy)


def test_a_first_time_client_of_feddyn_is_one_of_fedprox(toy):
    (_, _, dyn), *_ = federation(toy, FedDyn(alpha=0.3), 1)
    (_, _, prox), *_ = federation(toy, FedProx(mu=0.3), 1)
    for a, b in zip(dyn, prox, strict=True):
        check_close(a.change, b.change)


def test_feddyn_evaluates_the_mean_and_sends_the_cloud_model(tmp_path, toy):
    run = run_toy(tmp_path / "r", toy, algorithm="feddyn")
    assert all("cloud_accuracy" in line for line in run.rounds())
    saved = run.server()
    assert not same_bits(saved["weights"], FedDyn().evaluated(Server(saved["weights"], saved["state"])))


def moon_term(toy, algorithm, state_from=None):
    """The contrastive term and its gradient for one batch."""
    with torch_stream(0, "model"):
        net = TinyNet().double()
    sent = Sent(weights_of(net))
    own = make_device(toy, 1, state_from and state_from(sent.weights), Training())
    context = algorithm.start(net, sent, own)
    batch = Batch(own.inputs, own.labels, torch.arange(20))
    whole = algorithm.loss(net, batch, context)
    term = whole - F.cross_entropy(net(batch.x), batch.y)
    net.zero_grad()
    term.backward()
    return term.item(), max(p.grad.abs().max().item() for p in net.hidden.parameters())


def test_moon_with_previous_equal_to_global_is_log_2_without_gradient(toy):
    for state in (None, lambda received: received):
        term, gradient = moon_term(toy, Moon(mu=1.0), state)
        assert term == pytest.approx(math.log(2), abs=1e-10)
        assert gradient < 1e-10
    term, gradient = moon_term(toy, Moon(), lambda w: {name: tensor.flip(0) for name, tensor in w.items()})
    assert abs(term - math.log(2)) > 0.01
    assert gradient > 1e-3


def test_moons_frozen_passes_run_once_a_round(toy, monkeypatch):
    """Two passes over the local data without gradients, whatever the number of epochs."""
    calls = []
    monkeypatch.setattr(
        Client, "features", lambda self, net: calls.append(1) or torch.zeros(len(self.labels), 5).double()
    )
    training = Training(epochs=5, batch=7)
    list(federation(toy, Moon(), 2, clients=2, training=training))
    assert len(calls) == 1 + 2 - 1  # a first-time client needs one pass, later two; one client a round here


def test_fedrs_with_all_classes_is_fedavg(toy):
    (a, _, _), *_ = federation(toy, FedRS(alpha=0.2), 1, balanced=True)
    (b, _, _), *_ = federation(toy, KINDS["fedavg"](), 1, balanced=True)
    check_close(a.weights, b.weights)


def test_with_equal_counts_fedlc_is_bsm_is_a_softmax_over_the_held_classes(toy):
    (lc, _, uploads), *_ = federation(toy, FedLC(tau=3.0), 1)
    (bsm, _, _), *_ = federation(toy, KINDS["bsm-fedavg"](), 1)
    check_close(lc.weights, bsm.weights)

    @parameters
    class HeldOnly(Algorithm):
        name = "held only"

        def loss(self, net, batch, context):
            held = torch.nonzero(context.client.counts).flatten()
            return F.cross_entropy(net(batch.x)[:, held], torch.searchsorted(held, batch.y))

    (held, _, _), *_ = federation(toy, HeldOnly(), 1)
    check_close(lc.weights, held.weights)
    assert len(uploads) == 4


def test_fedbabu_neither_trains_nor_decays_the_head(toy):
    check_head_stays(FedBABU(), toy)


def test_label_smoothing_by_hand():
    logits, labels = torch.tensor([[1.0, 2.0, 0.5]]).double(), torch.tensor([1])
    soft = exact([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3])
    expected = -(soft * logits.log_softmax(1)).sum()
    net = nn.Identity()
    assert torch.allclose(LabelSmoothing().loss(net, Batch(logits, labels, labels), None), expected)


def test_fedavg_ft_tunes_the_head_only_on_samples_no_client_holds(tmp_path, toy):
    from rebafl.runs.experiment import prepare
    from rebafl.runs.settings import make_settings

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
    from rebafl.runs.experiment import prepare
    from rebafl.runs.settings import make_settings

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
    from rebafl.base.errors import UserError

    with pytest.raises(UserError, match="that no client holds"):
        run_toy(tmp_path / "r", toy, algorithm={"kind": "fedavg-ft", "samples": 50})


@pytest.mark.slow
def test_twenty_thousand_stateful_clients_fit_into_memory(tmp_path):
    """Client state lives on disk: 20 of 20,000 Scaffold clients a round, on the CIFAR-10 network."""
    code = """
import resource, sys
import numpy as np, rebafl
from rebafl.data.arrays import from_arrays
x = np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
y = np.arange(2000) % 10
data = from_arrays("random", {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": y[:100]})
settings = {"model": "cifar-cnn", "algorithm": "scaffold", "rounds": 3, "workers": 1,
            "partition": {"clients": 20000, "samples": 20}, "participation": {"kind": "fraction", "share": 0.001},
            "training": {"epochs": 1}}
record = rebafl.simulate(settings, sys.argv[1], data=data, model=lambda: rebafl.models.contract.CifarCNN((3, 32, 32), 10))
print(len(list(record.checkpoint.glob("client-*"))), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "r"], capture_output=True, text=True, check=True)
    states, megabytes = map(int, done.stdout.split())
    assert 57 <= states <= 60
    assert megabytes < 2000


# --- one round on three weights, by hand -----------------------------------------------------------------------------


class ThreeWeights(Classifier):
    """h = a x; z = (b0 h, b1 h)."""

    def __init__(self, a=1.0, b=(0.0, 0.0)):
        super().__init__()
        self.a = nn.Parameter(exact([a]))
        self.head = nn.Linear(1, 2, bias=False).double()
        self.head.weight.data = exact(b).reshape(2, 1)

    def features(self, x):
        return self.a * x


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def three(a, b0, b1):
    return {"a": exact([a]), "head.weight": exact([[b0], [b1]])}


STEP = Training(epochs=1, batch=9, lr=1.0, momentum=0.0, weight_decay=0.0)


def one_step(algorithm, net, x, y, counts, state=None, extra=None, client=0):
    """One client with one sample and one step of learning rate one."""
    sent = Sent(weights_of(net), extra or {})
    own = Client(client, exact([[x]]), torch.tensor([y]), torch.tensor(counts), torch.zeros(1), STEP,
                 generator(0, "t"), generator(0, "a"), state)  # fmt: skip
    return train(net, algorithm, sent, own)


def test_scaffold_by_hand():
    """a = 1, b = (0, 0), so every softmax is (1/2, 1/2), and the gradient of a is 0.

    Client 0: x = 1, y = 0: g = (0, -.5, .5). Client 1: x = 2, y = 1: g = (0, 1, -1).
    c = (.1, .2, -.2); c_0 = (0, .1, 0); c_1 = 0 (first time); one step of lr 1, no momentum.
    Steps -(g + c - c_i): (-.1, .4, -.3) and (-.1, -1.2, 1.2); their mean (-.1, -.4, .45) moves w to (.9, -.4, .45).
    With one step c_i becomes c_i - c + (g + c - c_i) = g: c_0 = (0, -.5, .5), c_1 = (0, 1, -1).
    With m = 4: c = (.1, .2, -.2) + ((0, -.6, .5) + (0, 1, -1)) / 4 = (.1, .3, -.325).
    """
    algorithm, c = Scaffold(), three(0.1, 0.2, -0.2)
    first, c_0 = one_step(algorithm, ThreeWeights(), 1.0, 0, [1, 0], three(0.0, 0.1, 0.0), c)
    second, c_1 = one_step(algorithm, ThreeWeights(), 2.0, 1, [0, 1], None, c, client=1)
    check_close(first.change, three(-0.1, 0.4, -0.3))
    check_close(second.change, three(-0.1, -1.2, 1.2))
    check_close(c_0, three(0.0, -0.5, 0.5))
    check_close(c_1, three(0.0, 1.0, -1.0))
    server = algorithm.aggregate(Server(three(1.0, 0.0, 0.0), c), [first, second], 4)
    check_close(server.weights, three(0.9, -0.4, 0.45))
    check_close(server.state, three(0.1, 0.3, -0.325))


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


def check_fedrs(algorithm, toy=None):
    """Class 1 is missing, alpha = .5, b = (0, 2 ln 3), a = x = 1: z = (0, ln 3), softmax (1/4, 3/4), y = 0.

    Gradients: b0: -3/4; b1: alpha 3/4 = 3/8; a: 3/4 alpha 2 ln 3 = 3/4 ln 3.
    """
    upload, _ = one_step(algorithm, ThreeWeights(1.0, (0.0, 2 * math.log(3))), 1.0, 0, [1, 0])
    check_close(upload.change, three(-0.75 * math.log(3), 0.75, -0.375), 1e-7)


def test_fedrs_by_hand():
    check_fedrs(FedRS(alpha=0.5))


def check_fedlc(algorithm, toy=None):
    """Counts (16, 1), tau = 1: margins 1/2 and 1, shifted 0 and 1/2. b = (0, .5), a = x = 1: both logits 0, y = 0.

    Softmax (1/2, 1/2): gradients b0 = -.5, b1 = .5, a = .5 * .5 = .25.
    """
    upload, _ = one_step(algorithm, ThreeWeights(1.0, (0.0, 0.5)), 1.0, 0, [16, 1])
    check_close(upload.change, three(-0.25, 0.5, -0.5))


def test_fedlc_by_hand():
    check_fedlc(FedLC())


class Moonlet(Classifier):
    """Three weights with a feature of two dimensions: h = (a0 x, a1 x); z = b h."""

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1).double())

        def forward(self, h):
            return self.weight * h

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(exact([1.0, 0.0]))
        self.head = self.Scale()

    def features(self, x):
        return self.a * x


def check_moon(algorithm, toy=None):
    """h = h_global = (1, 0), h_previous = (0, 1), tau = mu = 1, b = 0, x = 1, y = 0.

    The term is -log(e / (e + 1)); only the similarity with the previous feature moves, along (0, 1), with
    weight 1 / (1 + e). The cross entropy gives b the gradient -.5 and h none.
    """
    previous = {"a": exact([0.0, 1.0]), "head.weight": torch.zeros(1).double()}
    upload, after = one_step(algorithm, Moonlet(), 1.0, 0, [1, 0], previous)
    check_close(
        upload.change,
        {"a": exact([0.0, -1 / (1 + math.e)]), "head.weight": exact([0.5])},
    )
    check_close(after, {"a": exact([1.0, -1 / (1 + math.e)]), "head.weight": exact([0.5])})


def test_moon_by_hand():
    check_moon(Moon(tau=1.0))


# --- broken on purpose: the checks above must notice ------------------------------------------------------------------


def broken(base, methods):
    """A copy of an algorithm with some methods replaced."""
    cls = parameters(type(f"Broken{type(base).__name__}", (type(base),), methods))
    return cls(**{name: getattr(base, name) for name in (f.name for f in fields(base))})


def term_inside_the_parameter_loop(self, net, context):
    """The whole term added once for every parameter."""
    count = len(list(net.parameters()))
    for name, parameter, gradient in gradients(net):
        gradient.add_(parameter.detach() - context.sent.weights[name], alpha=self.mu * count)


def never_written_back(self, net, context, steps):
    upload, after = Scaffold.finish(self, net, context, steps)
    return upload, {name: torch.zeros_like(c) for name, c in after.items()}


def c_not_scaled(self, server, uploads, clients):
    return Scaffold.aggregate(self, server, uploads, len(uploads))


def correction_with_the_wrong_sign(self, net, context):
    for name, _, gradient in gradients(net):
        gradient.sub_(context.sent.extra[name]).add_(context.prepared[name])


def h_over_the_active_only(self, server, uploads, clients):
    return FedDyn.aggregate(self, server, uploads, len(uploads))


def cloud_without_h(self, server, uploads, clients):
    after = FedDyn.aggregate(self, server, uploads, clients)
    return replace(after, weights=self.evaluated(after))


def decayed_head(self, net, context, steps):
    """Frozen for the gradient, but not for weight decay."""
    upload = Algorithm.upload(self, net, context)
    head = {n: -1e-3 * w for n, w in context.sent.weights.items() if n.startswith("head.")}
    return Upload(upload.client, {**upload.change, **head}, upload.counts), {}


def scales_every_class(self, net, sent, client):
    return Context(sent, client, {"scale": torch.full((len(client.counts),), self.alpha)})


def margin_with_the_wrong_sign(self, net, sent, client):
    return Context(sent, client, {"margin": -count_margin(client.counts, self.tau)})


def similarities_swapped(self, net, sent, client):
    own = Moon.start(self, net, sent, client).prepared
    return Context(sent, client, {"global": own["previous"], "previous": own["global"]})


def previous_is_the_received_model(self, net, context, steps):
    return self.upload(net, context), dict(context.sent.weights)


MISTAKES = [
    (check_fedrs, FedRS(alpha=0.5), {"start": scales_every_class}),
    (check_fedlc, FedLC(), {"start": margin_with_the_wrong_sign}),
    (check_moon, Moon(tau=1.0), {"start": similarities_swapped}),
    (check_moon, Moon(tau=1.0), {"finish": previous_is_the_received_model}),
    (check_fedprox_gradient, FedProx(mu=0.7), {"correct": term_inside_the_parameter_loop}),
    (check_scaffold_c_is_the_mean, Scaffold(), {"finish": never_written_back}),
    (check_scaffold_corrects, Scaffold(), {"finish": never_written_back}),
    (check_scaffold_c_is_the_mean, Scaffold(), {"aggregate": c_not_scaled}),
    (check_scaffold_corrects, Scaffold(), {"correct": correction_with_the_wrong_sign}),
    (check_feddyn_h_is_the_mean, FedDyn(alpha=0.1), {"aggregate": h_over_the_active_only}),
    (check_feddyn_h_is_the_mean, FedDyn(alpha=0.1), {"aggregate": cloud_without_h}),
    (check_head_stays, FedBABU(), {"finish": decayed_head}),
]


@pytest.mark.parametrize(("check", "base", "methods"), MISTAKES, ids=lambda v: v.__name__ if callable(v) else None)
def test_classic_mistakes_are_noticed(toy, check, base, methods):
    with pytest.raises((AssertionError, KeyError)):
        check(broken(base, methods), toy)
