"""The item authors-draw is what the authors' code draws, and needs nothing but the package."""

from pathlib import Path

import numpy as np
import pytest

from authors_draw import as_trace, classes_held, takes_part
from rebafl.base.errors import UserError
from rebafl.base.reading import located
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.population.participation import Trace

HOLDERS = [4, 6, 5, 2, 5, 4, 4, 3, 2, 5]


@pytest.fixture(params=["paper", "quick"])
def settings(request):
    return [cell.settings for cell in cells(find_item("authors-draw"), find_scale(request.param))]


def test_every_cell_has_the_classes_that_are_drawn(settings):
    assert np.bincount(np.ravel(classes_held()), minlength=10).tolist() == HOLDERS
    for each in settings:
        assert [list(held) for held in each.partition.classes] == classes_held()


def test_every_cell_has_the_rounds_that_are_drawn(settings):
    expected = takes_part()
    assert located(settings[0].participation.path).read_text() == as_trace(expected)
    for each in settings:
        there = [each.participation.present(20, each.seed, number, "participation") for number in range(1, 201)]
        assert np.array_equal(there, expected)


def test_what_is_said_of_the_draw_is_so():
    there, held = takes_part(), np.array(classes_held())
    classes = np.array([there[:, (held == c).any(1)].any(1).mean() for c in range(10)])
    note = find_item("authors-draw").note
    assert f"a client is there in {there.mean():.1%} of the rounds".replace("%", " %") in note
    assert f"a class in {classes.mean():.1%}, class 3 in {classes[3]:.1%}".replace("%", " %") in note
    assert classes.argmin() == 3
    assert f"have {', '.join(map(str, HOLDERS[:-1]))} and {HOLDERS[-1]} holders" in note


def test_a_trace_has_a_line_for_each_stay(tmp_path):
    present = np.array([[True, False], [True, True], [False, False], [True, True]])
    text = as_trace(present)
    assert text.splitlines() == ["client,first,last", "0,1,2", "0,4,4", "1,2,2", "1,4,4"]
    (tmp_path / "t.csv").write_text(text)
    trace = Trace(path=str(tmp_path / "t.csv"))
    assert np.array_equal([trace.present(2, 0, number, "participation") for number in range(1, 5)], present)


def test_its_label_is_the_same_wherever_the_package_lies(settings, tmp_path, monkeypatch):
    labels = [each.label for each in settings]
    monkeypatch.chdir(tmp_path)
    assert [each.label for each in settings] == labels
    assert str(Path.home()) not in str(settings[0].plain())
    assert settings[0].participation.path.startswith("rebafl:")


def test_the_label_changes_with_the_content_of_a_shipped_trace(settings, tmp_path, monkeypatch):
    before = settings[0].digest
    (tmp_path / "other.csv").write_text("client,round\n0,1\n")
    monkeypatch.setattr("rebafl.runs.settings.located", lambda path: tmp_path / "other.csv")
    assert settings[0].digest != before


@pytest.mark.parametrize("path", ["rebafl:../x.csv", "rebafl:/etc/hosts", "rebafl:", "rebafl:paper/../../x"])
def test_only_files_of_the_package_come_with_it(path):
    with pytest.raises(UserError, match="leads out of the package"):
        located(path)
