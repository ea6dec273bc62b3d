"""How far our numbers are from the printed ones, and which of FedDyn's models is meant."""

import pytest

from rebafl.paper.gaps import by_the_authors_model, gaps
from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import cells_of, find_item, find_scale, printed
from rebafl.paper.results import file_of
from rebafl.paper.two_models import two_models
from rebafl.report.paper_claims import gaps_in_words
from support.paper import keep_made

PAPER = find_scale("paper")


def item_results(*names, folder):
    return [ItemResults(find_item(name), PAPER, folder) for name in names]


def test_a_cell_that_two_items_show_counts_once(tmp_path):
    """FedAvg and ReBaFL of table1 are those of the ablation."""
    table1, theirs = find_item("table1"), printed(find_item("table1"), "cifar-10 m=20", "FedAvg")
    for cell in cells_of([table1], PAPER, [0, 1], ["FedAvg", "FedDyn"], ["cifar-10 m=20"]):
        cloud = {"cloud_accuracy": 50.0} if cell.method == "FedDyn" else {}
        keep_made(cell, tmp_path, theirs + 1 + cell.settings.seed, **cloud)
    found = gaps(item_results("table1", "ablation", "cost", folder=tmp_path))
    assert [gap.name for gap in found] == [
        "FedAvg, table1: cifar-10 m=20", "FedDyn, table1: cifar-10 m=20", "FedDyn, cloud model, table1: cifar-10 m=20",
    ]  # fmt: skip
    assert found[0].by_measure["second_half"] == pytest.approx(1.5)
    assert found[0].by_measure["best"] == pytest.approx(1.5)
    assert found[0].seeds == 2
    assert found[2].by_measure["best"] == pytest.approx(50.0 - printed(table1, "cifar-10 m=20", "FedDyn"))
    assert by_the_authors_model(found) == [found[0], found[2]]


def test_a_number_that_the_paper_does_not_print_does_not_count(tmp_path):
    for cell in cells_of([find_item("clustered")], PAPER, [0], ["FedAvg"], ["fashion-mnist"]):
        keep_made(cell, tmp_path, 70.0)
    (gap,) = gaps(item_results("clustered", folder=tmp_path))
    assert gap.not_counted == "whose numbers are commented out in the paper's source"
    assert gaps_in_words([gap]) == "No cell was run yet that the paper prints a number for.\n"


def test_a_cell_counts_if_the_paper_prints_its_number_in_another_item(tmp_path):
    """ReBaFL in the clustered setting of CIFAR-10: the ablation prints what the table comments out."""
    for cell in cells_of([find_item("clustered")], PAPER, [0], ["ReBaFL"], ["cifar-10"]):
        keep_made(cell, tmp_path, 70.0)
    (gap,) = gaps(item_results("clustered", "ablation", folder=tmp_path))
    assert (gap.place, gap.not_counted) == ("ablation: CIFAR-10, clustered", "")


def test_numbers_of_table_1_beside_another_draw_are_shown_and_not_counted_again(tmp_path):
    """FedAvg is 6 points above the printed number on the authors' draw, 1 above it on that of table 1."""
    for name, off in (("authors-draw", 6.0), ("table1", 1.0)):
        for cell in cells_of([find_item(name)], PAPER, [0], ["FedAvg"], ["fashion-mnist m=20"]):
            keep_made(cell, tmp_path, 75.27 + off)
    words = gaps_in_words(gaps(item_results("table1", "authors-draw", folder=tmp_path)))
    assert "In 0 of the 1 cells" in words  # a flat curve: both measures are as far
    assert "Not counted: 1 whose numbers count once already, in table1 (0 of them nearer)." in words
    assert "| second half | 1.00 | 1.00 |" in words
    assert "| FedAvg, authors-draw: fashion-mnist m=20 | 75.27 | +6.00 | +6.00 | 1 |" in words


def test_two_models_are_those_of_one_run_beside_a_reference_on_the_same_seeds(tmp_path):
    for method, seeds in (("FedDyn", (0, 1, 2)), ("ReBaFL", (1, 2, 3))):
        for cell in cells_of([find_item("table1")], PAPER, seeds, [method], ["fashion-mnist m=20"]):
            cloud = {"cloud_accuracy": 70.0} if method == "FedDyn" else {}
            keep_made(cell, tmp_path, 80.0 + cell.settings.seed, **cloud)
    (found,) = two_models(item_results("table1", "lost-uploads", folder=tmp_path))
    assert (found.method, found.place, found.theirs) == ("FedDyn", "table1: fashion-mnist m=20", 77.98)
    assert [result.seed for result in found.clients] == [result.seed for result in found.reference] == [1, 2]
    assert [result.measure("best") for result in found.clients] == [81.0, 82.0]
    assert [result.measure("best") for result in found.cloud] == [70.0, 70.0]
    for cell in cells_of([find_item("table1")], PAPER, [1, 2, 3], ["ReBaFL"], ["fashion-mnist m=20"]):
        file_of(cell, tmp_path).unlink()
    (alone,) = two_models(item_results("table1", folder=tmp_path))
    assert len(alone.clients) == 3
    assert not alone.reference


def test_a_second_feddyn_of_a_place_is_told_from_the_first(tmp_path):
    for cell in cells_of(
        [find_item("authors-draw")], PAPER, [0], ["FedDyn", "FedDyn, α = 0.0001"], ["fashion-mnist m=20"]
    ):
        keep_made(cell, tmp_path, 80.0, cloud_accuracy=70.0)
    place = "authors-draw: fashion-mnist m=20"
    found = two_models(item_results("authors-draw", folder=tmp_path))
    assert [each.name for each in found] == [place, f"{place}, FedDyn, α = 0.0001"]
