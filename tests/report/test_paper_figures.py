"""Methods in one picture are told apart."""

import pytest

from rebafl.paper.items import find_item, item_names
from rebafl.report.paper_figures import look


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
