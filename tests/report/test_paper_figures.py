"""Methods in one picture are told apart, and shown with all that is known of them."""

from dataclasses import replace

import pytest
from matplotlib.container import ErrorbarContainer

from rebafl.paper.items import find_item, item_names
from rebafl.paper.two_models import TwoModels
from rebafl.report.paper_figures import _bars, _dots, _lines, draw_two_models, look
from support.paper import ITEM, made, shown


@pytest.mark.parametrize("name", item_names())
def test_methods_in_one_picture_are_told_apart_in_colour_and_in_grey(name):
    item = find_item(name)
    assert not {look(method, 0)["color"] for method in item.ours} & {
        look(method, 0)["color"] for method in item.methods
    }
    for methods in item.panels.values() or [item.shown_methods]:
        looks = [look(method, place) for place, method in enumerate(methods)]
        assert len({(each["color"], each["linestyle"]) for each in looks}) == len(methods)
        assert len({each["marker"] for each in looks}) == len(methods)


@pytest.fixture
def mixed(tmp_path):
    """A method with a cloud model and three seeds, one with three, one with one, and one of ours."""
    item = replace(ITEM, methods=("a", "b", "c"), ours=("mine",), conditions={"one": "", "two": ""})
    found = {
        (method, condition): {seed: made([50.0 + seed, 60.0 + seed], seed, **curves) for seed in seeds}
        for condition in item.conditions
        for method, seeds, curves in (
            ("a", (0, 1, 2), {"cloud_accuracy": [40.0, 41.0]}),
            ("b", (0, 1, 2), {}),
            ("c", (0,), {}),
            ("mine", (0,), {}),
        )
    }
    return shown(item, found, tmp_path)


@pytest.mark.parametrize("paint", [_dots, _bars])
def test_tables_are_drawn_with_both_models_ours_and_error_bars_over_the_seeds_there_are(paint, mixed):
    figure = paint(mixed)
    axes = figure.axes[0]
    labels = axes.get_yticklabels() if paint is _dots else axes.get_xticklabels()
    assert [label.get_text() for label in labels] == ["a", "a, cloud model", "b", "c", "mine (ours)"]
    assert "second half on more seeds, ± std" in [text.get_text() for text in figure.legends[0].get_texts()]
    spans = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    assert sum(container.has_xerr or container.has_yerr for container in spans) == 3, "a, its cloud model, and b"


def test_lines_stand_side_by_side_and_show_both_models(mixed):
    axes = _lines(mixed).axes[0]
    drawn = {container.get_label(): container[0].get_xdata() for container in axes.containers}
    assert list(drawn) == ["a", "a, cloud model", "b", "c", "mine (ours)"]
    assert len({tuple(x) for x in drawn.values()}) == 5
    assert all(abs(x - place) < 0.15 for xs in drawn.values() for place, x in enumerate(xs))


def test_two_models_are_drawn_beside_their_reference(tmp_path):
    run = made([float(number) for number in range(30)], cloud_accuracy=[5.0] * 30)
    models = TwoModels("FedDyn", "table1: here", [run], [run.of_cloud_model], [run], None)
    (path,) = draw_two_models([models, replace(models, reference=[])], tmp_path / "two")
    assert path == tmp_path / "two"
    assert all((tmp_path / f"two{ending}").stat().st_size > 5000 for ending in (".png", ".pdf"))
