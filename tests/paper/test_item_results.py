"""What of an item is shown side by side."""

from dataclasses import replace

from rebafl.paper import items
from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import cells, cells_of, find_item, find_scale, item_names
from rebafl.paper.readings import read_claim
from rebafl.paper.results import file_of
from support.paper import CLAIM, ITEM, keep_made, made, shown

WITH_OURS = replace(ITEM, ours=("mine",), conditions={"one": ""}, claims=(replace(CLAIM, pairs=(("a", "others"),)),))


def test_a_method_of_ours_is_shown_marked_and_no_claim_counts_it(tmp_path):
    """It is better than everything, and the claim that a is best holds all the same."""
    found = {("a", "one"): {0: made([80.0])}, ("b", "one"): {0: made([70.0])}, ("mine", "one"): {0: made([99.0])}}
    ours = shown(WITH_OURS, found, tmp_path)
    assert [row.name for row in ours.rows("one")] == ["a", "b", "mine (ours)"]
    assert ours.readings[0].decision == "held"
    every = replace(CLAIM, pairs=(("every @ one", "every @ two"),))
    compared = read_claim(replace(ITEM, ours=("mine",)), every, lambda method, condition: {0: made([1.0])})
    assert "mine" not in compared.first.evidence
    del found["mine", "one"]
    assert shown(WITH_OURS, found, tmp_path).pending == "", "what is ours is not missing of the paper"


def test_ours_is_run_when_it_is_named_and_not_otherwise():
    for name in item_names():
        item, scale = find_item(name), find_scale("paper")
        assert not {cell.method for cell in cells_of([item], scale, [0], (), ())} & set(item.ours)
        if item.ours:
            own = cells_of([item], scale, [0], item.ours, ())
            assert [cell.method for cell in own] == list(item.ours) * len(item.conditions)
            assert {cell.settings.algorithm.name for cell in own} == {"fedtrack"}
    assert {name for name in item_names() if find_item(name).ours} >= {
        "table1",
        "fig-dropout",
        "clustered",
        "table-scale",
        "authors-draw",
    }


def test_ours_is_named_by_its_settings_like_any_cell(tmp_path):
    """A run of the same settings that was made elsewhere is found by its name."""
    (cell,) = cells_of([find_item("fig-dropout")], find_scale("paper"), [0], ["FedTrack"], ["Fashion-MNIST, p = 0.1"])
    assert file_of(cell, tmp_path) == tmp_path / "paper" / "fashion-mnist-fedtrack-seed0-e2358e.json"


def test_seeds_that_ours_lacks_are_shown_of_the_others(tmp_path):
    found = {
        ("a", "one"): {0: made([80.0]), 1: made([81.0], 1)},
        ("b", "one"): {0: made([70.0]), 1: made([71.0], 1), 2: made([72.0], 2)},
        ("mine", "one"): {1: made([90.0], 1)},
    }
    rows = shown(WITH_OURS, found, tmp_path).rows("one")
    assert [[result.seed for result in row.results] for row in rows] == [[0, 1], [0, 1], [1]]


def test_methods_with_more_seeds_are_shown_again_on_these(tmp_path):
    seeds = {"a": (0, 1, 2), "b": (0, 1, 2, 3), "c": (0,), "d": (0, 1)}
    found = {(name, "one"): {seed: made([50.0 + seed], seed) for seed in own} for name, own in seeds.items()}
    item = replace(ITEM, methods=tuple(seeds), conditions={"one": ""})
    results = shown(item, found, tmp_path)
    assert [[result.seed for result in row.results] for row in results.rows("one")] == [[0]] * 4
    more = results.more_seeds("one")
    assert [(row.name, [result.seed for result in row.results]) for row in more] == [("a", [0, 1, 2]), ("b", [0, 1, 2])]
    assert [row.mean("best") for row in more] == [51.0, 51.0]
    for by_seed in found.values():
        by_seed.update({seed: made([50.0], seed) for seed in range(4)})
    assert results.more_seeds("one") == []


def test_a_run_with_a_cloud_model_has_a_row_for_it_from_the_same_file(tmp_path):
    found = {("a", "one"): {0: made([80.0, 82.0], cloud_accuracy=[70.0, 76.0], worst_recall=[5.0, 7.0])}}
    mean, cloud = shown(WITH_OURS, found, tmp_path).rows("one")
    assert (mean.name, mean.mean("best"), mean.mean("second_half")) == ("a", 82.0, 82.0)
    assert (cloud.name, cloud.mean("best"), cloud.mean("second_half")) == ("a, cloud model", 76.0, 76.0)
    assert "worst_recall" not in cloud.results[0].curves, "it is the other model's"


def test_where_the_second_half_is_far_from_the_paper_is_said(tmp_path):
    item, scale = find_item("table1"), find_scale("paper")
    for cell in cells(item, scale)[:2]:
        keep_made(
            cell, tmp_path, items.printed(item, cell.condition, cell.method) + (5.0 if cell.method == "FedAvg" else 1.0)
        )
    assert ItemResults(item, scale, tmp_path).far_from_paper() == ["FedAvg, fashion-mnist m=20: 80.27 against 75.27"]
    (again,) = cells(item, scale, seeds=[1])[:1]
    keep_made(again, tmp_path, 75.27 - 4.0)
    assert ItemResults(item, scale, tmp_path).far_from_paper() == [], "half a point off, over both seeds"
