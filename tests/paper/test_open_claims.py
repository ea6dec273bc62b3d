"""What is run next decides claims, the cheapest per claim first."""

from dataclasses import replace

import pytest

from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import Cell, Claim, cells, find_item, find_scale, item_names
from rebafl.paper.open_claims import OpenClaim, open_claims, plan
from rebafl.paper.readings import OPEN
from rebafl.runs.settings import make_settings
from support.paper import keep_made
from support.paths import RESULTS

PAPER = find_scale("paper")
SETTINGS = make_settings({"dataset": "fashion-mini"})


@pytest.fixture(scope="module")
def shown():
    return [ItemResults(find_item(name), PAPER, RESULTS) for name in item_names()]


def cell(name):
    return Cell(name, "", "paper", SETTINGS)


def claim(name, *needs):
    return OpenClaim(name, Claim(name, "best"), {need: cell(need) for need in needs})


def order(claims, **seconds):
    return [step.cell.method for step in plan(claims, lambda cell: seconds[cell.method])]


def test_the_claim_that_costs_least_comes_first_and_its_quickest_cell():
    claims = [claim("dear", "a", "b"), claim("cheap", "c", "d")]
    assert order(claims, a=5, b=5, c=4, d=2) == ["d", "c", "a", "b"]
    assert order(claims, a=1, b=2, c=4, d=2) == ["a", "b", "d", "c"]
    assert order(claims, a=1, b=1, c=1, d=1) == ["a", "b", "c", "d"], "a tie keeps the order of the paper"


def test_a_cell_that_is_planned_for_another_claim_costs_nothing():
    """Alone the third claim is dearest; after the first it needs one short cell more."""
    claims = [claim("first", "a"), claim("second", "b"), claim("third", "a", "c")]
    assert order(claims, a=10, b=11, c=1) == ["a", "c", "b"]


def test_each_cell_is_run_once_and_names_all_claims_that_it_serves():
    claims = [claim("first", "a", "b"), claim("second", "b", "c")]
    steps = plan(claims, lambda cell: 1.0)
    assert [(step.cell.method, [claim.name for claim in step.claims]) for step in steps] == [
        ("a", ["first"]),
        ("b", ["first", "second"]),
        ("c", ["second"]),
    ]


def test_the_greedy_rule_by_another_way_of_counting(shown):
    """Of the committed results, with made-up costs: each stretch that ends a claim is the cheapest next one."""
    claims = open_claims(shown, 0)
    costs = {key: 1.0 + sum(map(ord, key)) % 97 for claim in claims for key in claim.needs}
    steps = [step.cell.key for step in plan(claims, lambda cell: costs[cell.key])]
    assert len(steps) == len(set(steps)) == len(costs)
    have, left = set[str](), {claim.name: set(claim.needs) for claim in claims}
    while left:
        cost = {name: sum(costs[key] for key in needs - have) for name, needs in left.items()}
        cheapest = min(cost, key=lambda name: cost[name])
        new = left.pop(cheapest) - have
        assert set(steps[len(have) : len(have) + len(new)]) == new, cheapest
        have |= new


def test_what_is_open_is_what_the_verdicts_leave_open(shown):
    undecided = {
        f"{items.item.name}.{number}"
        for items in shown
        for number, reading in enumerate(items.readings, 1)
        if reading.decision in OPEN and reading.claim.measure != "race"
    }
    found = open_claims(shown, 0)
    assert {claim.name for claim in found} == undecided
    ours = {method for items in shown for method in items.item.ours}
    assert not {cell.method for claim in found for cell in claim.needs.values()} & ours


def test_a_claim_needs_the_cells_of_comparisons_that_no_seed_has_made(tmp_path):
    """FedAvg has seed 0 and ReBaFL seed 1: with seed 0 ReBaFL is missing, with seed 2 both are."""
    item = replace(find_item("cost"), claims=find_item("cost").claims[1:])
    everything = {(each.method, each.condition, each.settings.seed): each for each in cells(item, PAPER, (0, 1, 2))}
    first, second = item.conditions
    for condition in (first, second):
        keep_made(everything["FedAvg", condition, 0], tmp_path, 50.0)
        keep_made(everything["ReBaFL", condition, 1], tmp_path, 50.0)
    keep_made(everything["ReBaFL", first, 0], tmp_path, 50.0)

    def needs(seed):
        (found,) = open_claims([ItemResults(item, PAPER, tmp_path)], seed)
        return [(each.method, each.condition) for each in found.needs.values()]

    assert needs(0) == [("ReBaFL", second)]
    assert needs(2) == [("ReBaFL", second), ("FedAvg", second)]
    keep_made(everything["ReBaFL", second, 0], tmp_path, 50.0)
    assert open_claims([ItemResults(item, PAPER, tmp_path)], 0) == []
