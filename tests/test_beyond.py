"""The plan of the comparison behind docs/beyond.md: every run of it can be made, and the tables say what is there."""

import pytest
import torch

import beyond
import draw_beyond
from averaged_feddyn import AveragedFedDyn
from rebafl.algorithms.aggregate import Means
from rebafl.algorithms.feddyn import FedDyn
from rebafl.algorithms.interface import Server, Task
from rebafl.models.contract import weights_of
from rebafl.report.markdown import with_generated
from support.paper import made
from support.toy import TinyNet, make_toy


@pytest.mark.parametrize("part", beyond.PARTS)
def test_every_run_of_the_plan_has_settings_of_its_own(part):
    cells = list(beyond.cells(part))
    plan = beyond.PARTS[part]
    assert len({cell.key for cell in cells}) == len(cells)
    assert len(cells) == len(plan["seeds"]) * len(plan["conditions"]) * len(plan["methods"])


def test_settings_are_chosen_on_other_images_and_seeds_than_they_are_reported_on(monkeypatch):
    assert not {*beyond.PARTS["tuning"]["seeds"]} & {*beyond.PARTS["report"]["seeds"]}
    toy = make_toy()
    monkeypatch.setattr(beyond, "HELD_OUT", 10)
    monkeypatch.setattr(beyond, "load", lambda name, say: toy)
    data = beyond.held_out("toy")
    assert len(data.y_test) == 10
    assert len(data.y_train) == len(toy.y_train) - 10
    rows = [tuple(image.flatten().tolist()) for image in (*data.x_train, *data.x_test)]
    assert sorted(rows) == sorted(tuple(image.flatten().tolist()) for image in toy.x_train)


def test_the_page_shows_the_results_that_are_there():
    page = (beyond.HERE.parent / "docs" / "beyond.md").read_text()
    assert with_generated(page, beyond.tables()) == page


def test_the_pictures_say_what_is_shaded_and_their_panels_have_the_same_axis(monkeypatch):
    low, high = ([level + number for number in range(5)] for level in (10.0, 80.0))
    sent = {"bytes_up": [1e6] * 5, "bytes_down": [1e6] * 5}
    found = {"one": {0: made(low, 0, **sent), 1: made(high, 1, **sent)}, "two": {0: made(high, 0, **sent)}}
    kept = []
    monkeypatch.setattr(
        draw_beyond, "by_seed", lambda condition, method: found[condition] if method != "FedAvg" else {}
    )
    monkeypatch.setattr(draw_beyond, "save", lambda figure, path: kept.append(figure))
    draw_beyond.draw(("one", "two"), "megabytes", "x.png")
    one, two = kept[0].axes
    assert one.get_ylim() == two.get_ylim()
    assert [axes.get_title("left") for axes in (one, two)] == ["one (seeds 0, 1)", "two (seed 0)"]
    assert one.get_lines()[0].get_xdata().tolist() == [2, 4, 6, 8, 10]
    assert (len(one.collections), len(two.collections)) == (3, 0)
    (legend,) = kept[0].legends
    assert legend.get_title().get_text() == draw_beyond.BAND
    assert [text.get_text() for text in legend.get_texts()] == ["FedTrack", "ReBaFL, μ 5", "FedDyn, α 0.1"]


def test_the_average_of_feddyn_by_hand():
    """Two of four clients: weights 1/4 and 1/2, of a window that is filled to 3/4; training is that of FedDyn."""
    feddyn, averaged = FedDyn(), AveragedFedDyn()
    net, task = TinyNet(), Task(classes=3, features=5, clients=4)
    plain, server = (Server(weights_of(net), method.server_state(net, task)) for method in (feddyn, averaged))
    results = []
    for size in (1.0, 3.0):
        change = {name: torch.full_like(w, size) for name, w in weights_of(net).items()}
        means = Means(change, {}, torch.ones(3), 2)
        plain, server = feddyn.next_server(plain, means, 4), averaged.next_server(server, means, 4)
        results.append(feddyn.evaluated(plain))
    for name, weight in averaged.evaluated(server).items():
        assert torch.equal(server.weights[name], plain.weights[name])
        assert torch.allclose(weight, (results[0][name] + 2 * results[1][name]) / 3, atol=1e-5)


def test_every_method_is_tuned_with_as_many_settings():
    families = [method.split(",")[0] for method in beyond.PARTS["tuning"]["methods"]]
    assert {families.count(family) for family in families} == {4}
