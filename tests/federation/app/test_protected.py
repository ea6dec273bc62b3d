"""Protections in a federation: the simulator's bits where nothing is drawn; else the system's noise, and own books."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Message

from rebafl import UserError
from rebafl.algorithms.interface import Sent
from rebafl.federation.app.node.answer import within_budget
from rebafl.federation.app.node.client_states import ContextStore, FolderStore
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.records import Order, classes_record, failure_of, tensors
from rebafl.runs.accountant import epsilon_of
from support.grid import CLIENTS, FakeGrid, nodes_of, run, same_server, simulated
from support.lies import counts
from support.toy import lines

FIXED = {
    "few": " protect.min_count=11",
    "rounded": " protect.counts=rounded",
    "withheld": " protect.counts=withheld",
    "holders": " protect.min_holders=3",
    "announced": " protect.min_holders=3 protect.holders=announced",
    "clipped": " protect.clip=0.5 protect.update_clip=0.05",
}
FIXED["all"] = FIXED["withheld"] + FIXED["clipped"] + " protect.min_count=3 protect.min_holders=2"
NOISE = " protect.clip=1.0 protect.noise=5.0"


def two_uploads() -> str:
    """A budget that allows two noisy uploads and not three."""
    return f" protect.budget={epsilon_of(2**0.5 / 5, 1e-5) * 1.001}"


@pytest.mark.parametrize("rule", ["split", "fixed"])
@pytest.mark.parametrize("protect", FIXED)
def test_what_draws_no_numbers_gives_the_simulators_bits(tmp_path, config, protect, rule):
    config |= {"algorithm": "rebafl", "participation": "bernoulli", "counts": rule}
    config["partition.kind"] = "dirichlet"
    config["settings"] = config["settings"].replace("partition.samples=20", "")
    plain = simulated(config, tmp_path / "plain")
    config["settings"] += FIXED[protect]
    real = run(config)
    assert not same_server(real, plain), "it does something here"
    expected = simulated(config, tmp_path / "simulation")
    assert same_server(real, expected)
    assert lines(real.path) == lines(expected.path)
    assert all(not line.refused for line in real.rounds())


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
@pytest.mark.parametrize("protect", ["withheld", "clipped"])
def test_so_do_algorithms_without_prototypes(tmp_path, config, algorithm, protect):
    config |= {"algorithm": algorithm, "counts": "split"}
    config["settings"] += FIXED[protect]
    real = run(config)
    expected = simulated(config, tmp_path / "simulation")
    assert same_server(real, expected)
    assert lines(real.path) == lines(expected.path)


@pytest.mark.parametrize("rule", ["split", "fixed"])
def test_noise_comes_from_the_system_and_the_record_says_so(tmp_path, config, rule):
    config |= {"algorithm": "rebafl", "counts": rule}
    config["settings"] += NOISE
    real = run(config)
    again = run(config, out=str(tmp_path / "again"))
    assert not same_server(real, again)
    assert all(line.updated and not line.refused for line in real.rounds())
    assert [line.noise_source for line in real.rounds()] == ["system"] * 3
    assert [line.epsilon for line in real.rounds()] == [epsilon_of((n / 25) ** 0.5, 1e-5) for n in (1, 2, 3)]
    warnings = real.environment()["warnings"]
    assert any("voids any claim about the client as a whole" in sentence for sentence in warnings)
    assert not any("seed" in sentence for sentence in warnings)


def test_the_server_asks_nobody_whose_budget_is_spent(config):
    config["settings"] += NOISE + two_uploads()
    grid = FakeGrid(nodes_of(config))
    record = run(config, grid)
    assert [list(line.spent) for line in record.rounds()] == [[], [], list(range(CLIENTS))]
    assert not [asked for asked in grid.asked if asked[1] == 3 and asked[2] == "train"]


@pytest.mark.parametrize("where", ["folder", "context"])
def test_a_node_keeps_its_own_books(config, tmp_path, where):
    """A server that does not count, or that asks for the same round again, is refused by the node itself."""
    config["settings"] += NOISE
    state = tmp_path / "state" if where == "folder" else None
    nodes = nodes_of(config, state)
    run(config, FakeGrid(nodes), rounds=2)
    config["settings"] += two_uploads()
    settings, _ = read_run_config(config)
    kept = FolderStore(next(state.glob("*/client-0"))) if state else ContextStore(nodes[0].context)
    assert kept.uploads() == 2
    message = r"than the 2 that this node sent would exceed protect\.budget=\S+; it does not take part"
    with pytest.raises(UserError, match=message):
        within_budget(settings, kept)
    assert kept.uploads() == 2
    within_budget(replace(settings, protect=replace(settings.protect, budget=100.0)), kept)
    assert kept.uploads() == 3


def test_books_that_cannot_be_read_end_a_nodes_part(tmp_path):
    (tmp_path / "uploads").write_text("many")
    with pytest.raises(UserError, match="does not say how many uploads were sent; restore it"):
        FolderStore(tmp_path).uploads()
    assert FolderStore(Path(tmp_path / "other")).uploads() == 0


def test_counts_that_a_node_shows_although_they_are_withheld_are_refused(config):
    config["settings"] += " protect.counts=withheld"

    def conduct(part, round, reply):
        if part == 1:
            counts(10, 10, 0, 0)(reply.content)
        return reply

    record = run(config, FakeGrid(nodes_of(config), conduct))
    assert all("withheld in this run" in line.refused[1] for line in record.rounds())


ANNOUNCED = " protect.min_holders=3 protect.holders=announced"


def test_prototypes_of_few_holders_never_reach_the_server(config):
    config |= {"algorithm": "rebafl"}
    config["settings"] += ANNOUNCED
    rows = {}

    def conduct(part, round, reply):
        if "shared" in reply.content:
            rows[part, round] = tensors(reply.content, "shared")["prototypes"]
        return reply

    grid = FakeGrid(nodes_of(config), conduct)
    record = run(config, grid)
    for line in record.rounds():
        assert line.unshared
        for client in line.active:
            kept = rows[client, line.round]
            assert (kept[list(line.unshared)] == 0).all()
            assert (kept != 0).any() or len(line.unshared) > 2
    kinds = [kind for _, round, kind in grid.asked if round == 1]
    assert kinds == ["query"] * CLIENTS + ["train"] * CLIENTS


def announcing(classes):
    """What a node says of its classes, in place of the truth."""

    def lie(reply):
        note = reply.content["note"]
        told = torch.tensor(classes)
        reply.content = classes_record(int(note["client"]), int(note["round"]), told)

    return lie


@pytest.mark.parametrize("conduct_of_one", ["silent", "lies", "nonsense"])
def test_who_announces_nothing_true_counts_for_no_class(config, conduct_of_one):
    """All four hold different pairs of classes; with one announcement less, no class has its three holders."""
    config |= {"algorithm": "rebafl", "counts": "split"}
    config["settings"] += " partition.classes=3" + ANNOUNCED.replace("3", "4")

    def conduct(part, round, reply):
        first = "shared" not in reply.content
        if not first or part != 1 or round != 1:
            return reply
        if conduct_of_one == "silent":
            return None
        announcing([1, 1, 1, 1] if conduct_of_one == "lies" else [7, 0, 0, 0])(reply)
        return reply

    record = run(config, FakeGrid(nodes_of(config), conduct))
    first = record.rounds()[0]
    assert set(first.unshared) == {0, 1, 2, 3}, "none of the classes has four holders without it"
    assert 1 in first.used, "its upload is used all the same"


def test_a_node_tells_its_classes_only_in_a_run_that_says_so(config):
    node = nodes_of(config)[0]
    order = Order("0" * 32, 0, 1, 0, "{}", "", Sent({}, {}))
    reply = node.answer(Message(order.question(), node.node_id, "query"))
    assert "does not announce classes" in failure_of(reply.content)


def test_the_servers_noise_comes_from_the_system_too(tmp_path, config):
    config |= {"algorithm": "fedavg"}
    config["settings"] += " protect.update_clip=0.1 protect.central_noise=0.5 protect.counts=withheld"
    real, again = run(config), run(config, out=str(tmp_path / "again"))
    assert not same_server(real, again)
    assert [line.noise_source for line in real.rounds()] == ["system"] * 3
    assert [line.epsilon for line in real.rounds()] == [epsilon_of((n / 0.25) ** 0.5, 1e-5) for n in (1, 2, 3)]
    assert any("broadcasts only" in sentence for sentence in real.environment()["warnings"])
