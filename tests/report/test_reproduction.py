"""The page of the reproduction: what is pending, what is judged, and what is compared."""

import json
from dataclasses import replace

from rebafl.paper import items, results
from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import cells, cells_of, find_item, find_scale, item_names, printed
from rebafl.report.paper_tables import tables
from rebafl.report.reproduction import make_page
from support.paper import ITEM, made


def test_a_peak_that_the_second_half_does_not_confirm_is_said(tmp_path):
    """The first method has the best round, the other is ahead all the time."""
    item, shown = replace(ITEM, conditions={"one": ""}), {"a": [50.0, 50.0, 90.0, 50.0], "b": [80.0] * 4}
    found = ItemResults(item, find_scale("quick"), tmp_path)
    found.__dict__["results"] = {(method, "one"): {0: made(curve)} for method, curve in shown.items()}
    (verdict,) = found.verdicts()
    assert (verdict.decision, verdict.otherwise) == ("held", "did not hold")
    assert verdict.evidence == "one: a − b = +10.00; by the second half did not hold: one: a − b = -10.00"


def test_the_page_lists_what_is_pending_and_every_deviation(tmp_path):
    text = make_page(tmp_path, lambda shown: [], {})
    assert text.count("pending") >= 2 * len(item_names())
    assert all(deviation in text for deviation in items.deviations())
    assert not ItemResults(find_item("table1"), find_scale("paper"), tmp_path).results


def test_the_papers_own_numbers_are_judged_by_the_same_rules(tmp_path):
    """By half a point ReBaFL's lead over FedDyn is too close in two columns; of the clustered setting see the note."""
    text = make_page(tmp_path, lambda shown: [], {})
    assert "| ReBaFL achieves the highest test accuracy in every setting. | too close | not run |" in text
    assert "| The accuracy of all methods decreases with m. | held | not run |" in text


def test_seconds_are_judged_by_the_benchmark(tmp_path):
    for ratio, decision in ((1.1, "**held**"), (1.3, "**did not hold**")):
        text = make_page(tmp_path, lambda shown: [], {"rebafl_to_fedavg": {"ratio": ratio, "spread": [1.0, 1.5]}})
        assert f"seconds per round). |  | {decision} | not run | paper: rounds in turn" in text


def test_longer_runs_are_compared_over_the_same_rounds_and_any_seed_is_found(tmp_path):
    cell = cells(find_item("table1"), find_scale("quick"), seeds=(42,))[0]
    rounds = cell.settings.rounds + 5
    kept = {"rounds": rounds, "seed": 42, "settings": {}, "environment": {}}
    curves = {"accuracy": [10.0] * cell.settings.rounds + [99.0] * 5}
    path = results.file_of(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(kept | {"curves": curves}))
    shown = ItemResults(find_item("table1"), find_scale("quick"), tmp_path)
    assert shown.lookup(cell.method, cell.condition)[42].measure("best") == 10.0
    assert not shown.comparable, "one curve alone"
    first, *rest = shown.pending.split("; ")
    assert first == f"{cell.condition}: {', '.join(m for m in shown.item.methods if m != cell.method)}"
    assert rest == [f"{condition}: all" for condition in shown.item.conditions if condition != cell.condition]


def test_tables_and_figures_show_the_seeds_that_all_methods_have(tmp_path):
    """A mean over five seeds beside one of a single seed would compare draws of data, not methods."""
    item = find_item("table1")
    for method, seeds in (("FedAvg", (0, 1)), ("ReBaFL", (1,))):
        for cell in cells_of([item], find_scale("quick"), seeds, [method], ["cifar-10 m=20"]):
            path, rounds = results.file_of(cell, tmp_path), cell.settings.rounds
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = {"rounds": rounds, "seed": cell.settings.seed, "settings": {}, "environment": {}}
            path.write_text(json.dumps(kept | {"curves": {"accuracy": [10.0 + cell.settings.seed] * rounds}}))
    shown = ItemResults(item, find_scale("quick"), tmp_path)
    assert list(shown.lookup("FedAvg", "cifar-10 m=20")) == [0, 1]
    assert list(shown.on_common_seeds("FedAvg", "cifar-10 m=20")) == [1]
    assert tables(shown)[0][1][1] == [
        ("FedAvg", "11.00", "11.00", "0.00", "1"),
        ("ReBaFL", "11.00", "11.00", "0.00", "1"),
    ]
    header, rows = tables(shown, always_printed=True)[0][1]
    assert header[:3] == ("method", "best", "paper, at its scale")
    assert [row[2] for row in rows] == [
        f"{printed(item, 'cifar-10 m=20', method):.2f}" for method in ("FedAvg", "ReBaFL")
    ]
