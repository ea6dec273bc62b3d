"""Same seed, same bits: whatever the engine, the workers, and what happens to them."""

import multiprocessing
import os
import re
import time
from pathlib import Path

import pytest
import torch

import rebafl
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.base.errors import UserError
from rebafl.runs.events import RoundLine
from support.engines import run_images
from support.toy import TOY_SETTINGS, TinyNet, lines, run_toy, same_bits, weights


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"model": "cifar-cnn", "training": {"transform": "crop-flip", "epochs": 1}}])
def test_one_two_and_four_workers_give_the_same_bits(tmp_path, changes):
    records = [run_images(tmp_path / str(n), n, **changes) for n in (1, 2, 4)]
    for other in records[1:]:
        assert same_bits(weights(records[0]), weights(other))
        assert same_bits(records[0].server()["state"], other.server()["state"])
        assert lines(records[0].path) == lines(other.path)


class Scribbler(Algorithm):
    """FedAvg, but a client writes into what it was sent, once it is done with it."""

    name = "scribbler"

    def next_state(self, net, context, upload, steps):
        for tensor in context.sent.weights.values():
            tensor.fill_(1.0)
        return super().next_state(net, context, upload, steps)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_client_does_to_its_broadcast_reaches_nobody_else(tmp_path, toy, monkeypatch, workers):
    monkeypatch.setitem(KINDS, "scribbler", Scribbler)
    plain, scribbled = (
        run_toy(tmp_path / name, toy, algorithm=name, workers=workers) for name in ("fedavg", "scribbler")
    )
    assert same_bits(weights(plain), weights(scribbled))


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


@pytest.mark.usefixtures("sabotage")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_fails_does_not_stop_the_round(tmp_path, toy, workers):
    record = run_toy(tmp_path / "r", toy, algorithm="sabotage", participation="always", workers=workers)
    for line in record.rounds():
        assert list(line.refused) == [1]
        assert re.fullmatch(r"ZeroDivisionError: on purpose at \S+\.py:\d+", line.refused[1]), (
            "file and line of own code"
        )
        assert line.updated


@pytest.mark.usefixtures("sabotage")
@pytest.mark.parametrize("workers", [1, 2])
def test_the_whole_story_of_a_failure_is_told_where_it_is_wanted(tmp_path, toy, monkeypatch, workers):
    def told():
        said: list[str] = []
        settings = {**TOY_SETTINGS, "algorithm": "sabotage", "participation": "always", "workers": workers, "rounds": 1}
        rebafl.simulate(settings, tmp_path / str(len(list(tmp_path.iterdir()))), toy, TinyNet, say=said.append)
        return said

    assert told() == []
    monkeypatch.setenv("REBAFL_DEBUG", "1")
    (story,) = told()
    assert story.startswith("Round 1, client 1:\nTraceback (most recent call last)")
    assert "raise ZeroDivisionError" in story


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
    assert "died 3 times" in record.rounds()[0].refused[1]
    assert record.rounds()[0].updated


@pytest.mark.usefixtures("sabotage")
def test_if_every_client_fails_the_run_stops_with_the_reason(tmp_path, toy):
    only = {"kind": "trace", "path": str(tmp_path / "t.csv")}
    (tmp_path / "t.csv").write_text("client,round\n1,1\n")
    with pytest.raises(UserError, match="ZeroDivisionError: on purpose"):
        run_toy(tmp_path / "r", toy, algorithm="sabotage", participation=only)


def test_no_process_is_left_behind(tmp_path, toy):
    run_toy(tmp_path / "r", toy, workers=3, rounds=1)
    deadline = time.monotonic() + 5
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert multiprocessing.active_children() == []


def test_memory_and_open_files_do_not_grow(tmp_path, toy):
    seen = {}

    def measure(event):
        if isinstance(event, RoundLine) and event.round in (20, 120):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen[event.round] = pages * 4096, len(os.listdir("/proc/self/fd"))

    settings = {**TOY_SETTINGS, "rounds": 120, "workers": 2, "algorithm": "scaffold"}
    rebafl.simulate(settings, tmp_path / "r", data=toy, model=TinyNet, listen=measure)
    assert seen[120][0] - seen[20][0] < 5_000_000
    assert seen[120][1] == seen[20][1]


def test_models_that_exist_only_here_reach_the_workers(tmp_path, toy):
    class Local(TinyNet):
        pass

    assert run_toy(tmp_path / "r", toy, model=lambda: Local(), workers=2, rounds=1).round == 1
