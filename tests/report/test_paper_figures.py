"""Methods in one picture are told apart, and shown with all that is known of them."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from rebafl.paper.items import find_item, item_names
from rebafl.paper.two_models import TwoModels
from rebafl.report.paper_figures import LINES, SMOOTHED, _curves, _dots, _lines, draw_two_models, look, seeds_in_words
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


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def heading_of(figure: Figure) -> str:
    return figure.legends[0].get_title().get_text()


def drawn(axes: Axes, name: str):
    return next(line for line in axes.get_lines() if line.get_label() == name)


def test_tables_are_drawn_with_both_models_ours_and_error_bars_over_the_seeds_there_are(mixed):
    figure = _dots(mixed)
    axes = figure.axes[0]
    labels = axes.get_yticklabels()
    assert [label.get_text() for label in labels] == ["a", "a, cloud model", "b", "c", "mine (ours)"]
    assert set(legend_of(figure)) == {
        "second half, seed 0",
        "mine (ours), second half, seed 0",
        "best round, seed 0",
        "second half, seeds 0 to 2: mean ± std",
    }
    spans = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    assert sum(container.has_xerr or container.has_yerr for container in spans) == 3, "a, its cloud model, and b"


def test_panels_of_a_data_set_have_the_same_axis_and_a_point_is_as_long_in_all(tmp_path):
    conditions = {"one": "dataset=x p=1", "two": "dataset=x p=2", "three": "dataset=y"}
    item = replace(ITEM, conditions=conditions)
    levels = {"one": 20.0, "two": 60.0, "three": 5.0}
    found = {(m, c): {0: made([level, level + 3])} for c, level in levels.items() for m in item.methods}
    one, two, three = (axes.get_xlim() for axes in _dots(shown(item, found, tmp_path)).axes)
    assert one == two
    assert three != one
    assert np.diff(one) == pytest.approx(np.diff(three))
    assert three[0] < 5
    assert three[1] > 8


def long_runs(tmp_path, rounds, seeds=(0,)):
    """FedProx lies on FedAvg, and FedDyn has two models."""
    item = replace(ITEM, methods=("FedAvg", "FedProx", "FedDyn"), conditions={"one": ""}, shows=("curves",))
    jumps = [50.0 + 20 * (number % 2) for number in range(rounds)]
    curves = {"diversity": [0.3] * rounds}
    found = {(method, "one"): {seed: made(jumps, seed, **curves) for seed in seeds} for method in item.methods[:2]}
    cloud = {"cloud_accuracy": [40.0] * rounds, **curves}
    found["FedDyn", "one"] = {seed: made(jumps, seed, **cloud) for seed in seeds}
    return shown(item, found, tmp_path)


def test_of_long_runs_means_of_ten_rounds_are_drawn_on_single_ones_and_the_picture_says_so(tmp_path):
    figure = _curves(long_runs(tmp_path, 100, seeds=(0, 1)))
    (axes,) = figure.axes
    for name in ("FedAvg", "FedProx", "FedDyn"):
        assert drawn(axes, name).get_xdata()[0] == 10
        assert np.allclose(drawn(axes, name).get_ydata(), 60)
    assert heading_of(figure) == f"seeds 0, 1; {SMOOTHED}; band: ± std over seeds"
    assert legend_of(figure) == ["FedAvg", "FedProx", "FedDyn", "FedDyn, cloud model"]
    assert len(axes.get_lines()) == 2 * len(legend_of(figure))


def test_short_runs_are_drawn_as_they_are(tmp_path):
    figure = _curves(long_runs(tmp_path, 20))
    (axes,) = figure.axes
    assert heading_of(figure) == "seed 0"
    assert drawn(axes, "FedAvg").get_ydata().tolist() == [50.0, 70.0] * 10
    assert len(axes.get_lines()) == len(legend_of(figure))


def test_a_method_that_lies_on_another_is_broken_and_above_it_so_that_both_are_seen(tmp_path):
    (axes,) = _curves(long_runs(tmp_path, 100)).axes
    below, above = drawn(axes, "FedAvg"), drawn(axes, "FedProx")
    assert (below.get_linestyle(), above.get_linestyle()) == ("-", "-.")
    assert below.get_zorder() < above.get_zorder()
    assert look("R-BSM", 0)["linestyle"] in LINES
    assert look("ReBaFL", 0)["linestyle"] == "-"


def test_the_diversity_has_no_second_model_and_plain_numbers(tmp_path):
    figure = _curves(long_runs(tmp_path, 100), "diversity")
    (axes,) = figure.axes
    assert legend_of(figure) == ["FedAvg", "FedProx", "FedDyn"]
    figure.draw_without_rendering()
    assert "0.3" in [label.get_text() for label in axes.get_yticklabels(which="both")]
    assert not [label for label in axes.get_yticklabels(which="both") if "10^" in label.get_text()]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([(0,), (0,)], "seed 0"),
        ([(0, 1, 2), (2, 1, 0)], "seeds 0 to 2"),
        ([(0, 3), (0, 3)], "seeds 0, 3"),
        ([(0,), (0, 1)], "1 to 2 seeds"),
        ([(0, 1), (2, 3)], "not the same seeds"),
        ([], ""),
    ],
)
def test_seeds_in_words(seeds, words):
    assert seeds_in_words([[made([1.0], seed) for seed in each] for each in seeds]) == words


def test_lines_stand_side_by_side_and_show_both_models(mixed):
    axes = _lines(mixed).axes[0]
    places = {container.get_label(): container[0].get_xdata() for container in axes.containers}
    assert list(places) == ["a", "a, cloud model", "b", "c", "mine (ours)"]
    assert len({tuple(x) for x in places.values()}) == 5
    assert all(abs(x - place) < 0.15 for xs in places.values() for place, x in enumerate(xs))
    widths = {container.get_label(): container[0].get_linewidth() for container in axes.containers}
    assert axes.get_legend().get_title().get_text() == "seed 0"
    assert widths["a, cloud model"] < widths["a"] == widths["mine (ours)"]


def test_two_models_are_drawn_beside_their_reference(tmp_path):
    run = made([float(number) for number in range(30)], cloud_accuracy=[5.0] * 30)
    models = TwoModels("FedDyn", "table1: here", [run], [run.of_cloud_model], [run], None)
    (path,) = draw_two_models([models, replace(models, reference=[])], tmp_path / "two")
    assert path == tmp_path / "two"
    assert all((tmp_path / f"two{ending}").stat().st_size > 5000 for ending in (".png", ".pdf"))
