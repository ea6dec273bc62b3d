"""Same seed, same bits: whatever the engine, the workers, and what happens to them."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rebafl
from conftest import TOY_SETTINGS, TinyNet, lines, run_toy, same_bits, weights
from rebafl import parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.base.errors import UserError


def run_images(out, workers, **changes):
    """Convolutions and channels_last, where memory layout could change bits."""
    settings = {
        "dataset": "fashion-mini", "rounds": 2, "workers": workers,
        "partition": {"clients": 5, "samples": 60}, "training": {"epochs": 1, "batch": 20}, **changes,
    }  # fmt: skip
    return rebafl.simulate(settings, out, say=lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"model": "cifar-cnn", "training": {"transform": "crop-flip", "epochs": 1}}])
def test_one_two_and_four_workers_give_the_same_bits(tmp_path, changes):
    records = [run_images(tmp_path / str(n), n, **changes) for n in (1, 2, 4)]
    for other in records[1:]:
        assert same_bits(weights(records[0]), weights(other))
        assert same_bits(records[0].server()["state"], other.server()["state"])
        assert lines(records[0].path) == lines(other.path)


def test_another_seed_gives_other_bits(tmp_path, toy):
    a, b = (run_toy(tmp_path / str(seed), toy, seed=seed) for seed in (0, 1))
    assert not same_bits(weights(a), weights(b))


def test_global_random_state_and_threads_do_not_matter_and_are_left_alone(tmp_path, toy):
    first = run_toy(tmp_path / "a", toy)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    torch.rand(3)
    second = run_toy(tmp_path / "b", toy)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    assert same_bits(weights(first), weights(second))


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


@pytest.fixture
def sabotage(monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)


@pytest.mark.usefixtures("sabotage")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_fails_does_not_stop_the_round(tmp_path, toy, workers):
    record = run_toy(tmp_path / "r", toy, algorithm="sabotage", participation="always", workers=workers)
    for line in record.rounds():
        assert line["refused"] == {"1": "ZeroDivisionError: on purpose"}
        assert line["updated"]


@pytest.mark.usefixtures("sabotage")
def test_a_worker_that_is_killed_once_changes_nothing(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, algorithm={"kind": "sabotage", "deed": "once", "place": str(tmp_path)},
                     participation="always", workers=2)  # fmt: skip
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg", participation="always", workers=2)
    assert (tmp_path / "done").exists()
    assert same_bits(weights(record), weights(plain))


@pytest.mark.usefixtures("sabotage")
def test_a_client_that_kills_every_worker_is_given_up(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, algorithm={"kind": "sabotage", "deed": "die", "place": str(tmp_path)},
                     participation="always", workers=2, rounds=1)  # fmt: skip
    assert "died 3 times" in record.rounds()[0]["refused"]["1"]
    assert record.rounds()[0]["updated"]


@pytest.mark.usefixtures("sabotage")
def test_if_every_client_fails_the_run_stops_with_the_reason(tmp_path, toy):
    only = {"kind": "trace", "path": str(tmp_path / "t.csv")}
    (tmp_path / "t.csv").write_text("client,round\n1,1\n")
    with pytest.raises(UserError, match="ZeroDivisionError: on purpose"):
        run_toy(tmp_path / "r", toy, algorithm="sabotage", participation=only)


@parameters
class Poison(Algorithm):
    """FedAvg, but some clients send nonsense."""

    name = "poison"
    clients: tuple[int, ...] = (0, 2)

    def upload(self, net, context, steps):
        upload = super().upload(net, context, steps)
        if context.client.id in self.clients:
            upload.change["head.bias"].fill_(float("nan"))
        return upload


def test_nonsense_is_refused_and_recorded_and_the_round_goes_on(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "poison", Poison)
    record = run_toy(tmp_path / "r", toy, algorithm="poison", participation="always", rounds=2)
    assert [set(line["refused"]) for line in record.rounds()] == [{"0", "2"}] * 2
    assert "head.bias holds NaN" in record.rounds()[0]["refused"]["0"]
    assert all(torch.isfinite(tensor).all() for tensor in weights(record).values())


def test_if_nothing_is_left_the_model_stays_and_the_round_says_so(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "poison", Poison)
    poison = {"kind": "poison", "clients": list(range(6))}
    one = run_toy(tmp_path / "1", toy, algorithm=poison, participation="always", rounds=1)
    two = run_toy(tmp_path / "2", toy, algorithm=poison, participation="always", rounds=2)
    assert same_bits(weights(one), weights(two))
    assert [line["updated"] for line in two.rounds()] == [False, False]
    assert two.rounds()[0]["diversity"] is None


@parameters
class Overflow(Algorithm):
    """FedAvg whose server computes infinity in round 2."""

    name = "overflow"

    def aggregate(self, server, uploads, clients):
        after = super().aggregate(server, uploads, clients)
        if server.state["n"] == 1:
            after.weights["head.bias"].fill_(float("inf"))
        return replace(after, state={"n": server.state["n"] + 1})

    def server_state(self, net, task):
        return {"n": torch.zeros(())}


def test_a_model_that_is_not_finite_is_dropped_and_the_run_can_go_on(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "overflow", Overflow)
    record = run_toy(tmp_path / "r", toy, algorithm="overflow", rounds=2)
    assert record.rounds()[1]["updated"] is False
    assert "head.bias holds NaN or infinity" in record.rounds()[1]["discarded"]
    assert same_bits(weights(record), weights(run_toy(tmp_path / "one", toy, algorithm="overflow", rounds=1)))
    assert run_toy(tmp_path / "r", toy, algorithm="overflow", rounds=3).round == 3


def test_one_client_alone_that_fails_later_on_does_not_stop_the_run(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)
    (tmp_path / "t.csv").write_text("client,round\n0,1\n1,2\n0,3\n")
    only = {"kind": "trace", "path": str(tmp_path / "t.csv")}
    record = run_toy(tmp_path / "r", toy, algorithm="sabotage", participation=only)
    assert [line["updated"] for line in record.rounds()] == [True, False, True]


def test_an_empty_round_of_a_trace_is_an_empty_round(tmp_path, toy):
    (tmp_path / "t.csv").write_text("client,round\n0,1\n3,3\n")
    record = run_toy(tmp_path / "r", toy, participation={"kind": "trace", "path": str(tmp_path / "t.csv")})
    assert [line["active"] for line in record.rounds()] == [[0], [], [3]]
    assert [line["updated"] for line in record.rounds()] == [True, False, True]


def test_no_process_is_left_behind(tmp_path, toy):
    run_toy(tmp_path / "r", toy, workers=3, rounds=1)
    deadline = time.monotonic() + 5
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert multiprocessing.active_children() == []


def test_memory_and_open_files_do_not_grow(tmp_path, toy):
    seen = {}

    def measure(event, facts):
        if event == "round" and facts["round"] in (20, 120):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen[facts["round"]] = pages * 4096, len(os.listdir("/proc/self/fd"))

    settings = {**TOY_SETTINGS, "rounds": 120, "workers": 2, "algorithm": "scaffold"}
    rebafl.simulate(settings, tmp_path / "r", data=toy, model=TinyNet, listen=measure)
    assert seen[120][0] - seen[20][0] < 5_000_000
    assert seen[120][1] == seen[20][1]


def test_models_that_exist_only_here_reach_the_workers(tmp_path, toy):
    class Local(TinyNet):
        pass

    assert run_toy(tmp_path / "r", toy, model=lambda: Local(), workers=2, rounds=1).round == 1
