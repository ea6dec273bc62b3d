"""The paper as data: every item can be run."""

from typing import Any

import pytest

from rebafl.paper import items
from rebafl.paper.items import cells, cells_of, find_item, find_scale, item_names, printed


@pytest.mark.parametrize("name", item_names())
@pytest.mark.parametrize("scale", ["paper", "quick"])
def test_every_cell_has_settings_and_every_claim_speaks_of_methods_that_are_run(name, scale):
    item = find_item(name)
    every = cells(item, find_scale(scale), seeds=(0, 1))
    assert len(every) == 2 * len(item.methods) * len(item.conditions)
    same = 4 if name == "fig-hyper" else 0  # μ = 0 is ε = 0.01, on two data sets with two seeds
    assert len({cell.key for cell in every}) == len(every) - same
    for claim in item.claims:
        sides = [side.partition(items.AT) for pair in claim.pairs for side in (*pair, *(claim.ratio or ()))]
        assert {method for method, _, _ in sides} - {items.OTHERS, items.EVERY} <= set(item.methods)
        assert {condition for _, at, condition in sides if at} | set(claim.where) <= set(item.conditions)
    grouped = [method for methods in item.panels.values() for method in methods]
    assert not grouped or grouped == list(item.methods)
    assert not set(item.ours) & set(item.methods)


def test_the_papers_scale_is_the_papers():
    for cell in cells(find_item("table1"), find_scale("paper")):
        s: Any = cell.settings
        assert (s.rounds, s.partition.samples, s.partition.classes, s.participation.p) == (200, 1000, 2, 0.5)
        assert (s.training.epochs, s.training.batch, s.training.weight_decay) == (5, 50, 5e-4)
        assert s.training.lr == (0.02 if s.dataset == "cifar-10" else 0.01)
        assert s.training.transform == ("crop-flip" if s.dataset == "cifar-10" else "none")


def test_the_quick_scale_keeps_what_the_paper_uses_for_the_data_set():
    cell = cells_of([find_item("ablation")], find_scale("quick"), [0], ["R-BSM"], ["CIFAR-10, clustered"])[0]
    s: Any = cell.settings
    assert (s.dataset, s.model.kind, s.training.lr, s.training.transform) == (
        "cifar-mini",
        "cifar-cnn",
        0.02,
        "crop-flip",
    )
    assert (s.partition.name, s.partition.samples, s.participation.p) == ("clustered", 100, (0.5, 0.5, 0.3, 0.3, 0.2))
    assert (s.rounds, s.algorithm.mu, s.algorithm.eps) == (20, 0, 0.01)


def test_cells_that_items_share_are_one_run():
    first, second = (cells(find_item(name), find_scale("paper")) for name in ("table1", "ablation"))
    shared = {cell.key for cell in first} & {cell.key for cell in second}
    assert len(shared) == 4, "FedAvg and ReBaFL at m = 20, on both data sets"


def test_printed_numbers_are_found():
    assert printed(find_item("table1"), "cifar-10 m=50", "ReBaFL") == 68.59
    assert printed(find_item("ablation"), "CIFAR-10, clustered", "F-Aug") == 58.85
    assert printed(find_item("clustered"), "fashion-mnist", "MOON") == 72.6
    assert printed(find_item("table-scale"), "m=500", "Scaffold") == 16.12
    assert printed(find_item("fig-prelim"), "CIFAR-10, m = 50, p = 0.2", "FedAvg") is None
