"""Results of cells: what is measured of them, and that damage is noticed."""

import json
import re

import pytest

from rebafl.base.errors import UserError
from rebafl.base.sealed import unseal
from rebafl.paper import results
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs.verify import compare
from support.damage import flips
from support.paper import made
from support.toy import round_line, run_toy


def kept_result(tmp_path, toy):
    """The result of a cell, as a finished run leaves it."""
    cell = cells(find_item("table1"), find_scale("quick"))[0]
    run = run_toy(tmp_path / "run", toy)
    return cell, results.keep(cell, run, tmp_path / "results")


def test_every_flipped_bit_of_a_result_is_noticed(tmp_path, toy):
    cell, path = kept_result(tmp_path, toy)
    whole = path.read_bytes()
    assert results.read(cell, tmp_path / "results").rounds == 3
    for damaged in flips(whole):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=re.escape(str(path))) as error:
            results.read(cell, tmp_path / "results")
        assert "\n" not in str(error.value)


def test_results_of_earlier_versions_are_read_as_they_are(tmp_path, toy):
    cell, path = kept_result(tmp_path, toy)
    found, sealed = unseal(path.read_bytes())
    assert sealed
    path.write_text(json.dumps(found))
    before = path.read_bytes()
    assert results.read(cell, tmp_path / "results").curves == found["curves"]
    assert path.read_bytes() == before


def test_measures_by_hand():
    result = made([50.0, 90.0] + [70.0, 80.0] * 5, bytes_up=[4, 8] * 6, diversity=[1.0, None, 3.0])
    assert result.measure("best") == 90.0
    assert result.measure("last10") == 75.0
    assert result.measure("second_half") == 75.0
    assert result.measure("accuracy") == pytest.approx((50 + 90 + 150 * 5) / 12)
    assert result.measure("diversity") == 2.0
    assert result.measure("bytes_up") == 3.0
    assert result.cut(1).measure("best") == 50.0


def test_the_worst_class_of_each_round_is_kept():
    """A class that is not in the test set has no recall, and is not the worst."""
    rows = [round_line(recall=(80.0, 12.5, 40.0)), round_line(recall=(None, 30.0, 20.0)), round_line(recall=(None,))]
    assert results.curves_of(rows)["worst_recall"] == [12.5, 20.0, None]
    result = made([50.0] * 4, worst_recall=[0.0, 10.0, 20.0, 30.0])
    assert result.measure("worst_recall") == 25.0, "over the second half"


def test_results_that_lack_the_worst_class_are_read_and_repeated(tmp_path, toy):
    """A file of an earlier version has fewer curves: those it has are compared, and a difference in them is found."""
    _, path = kept_result(tmp_path, toy)
    found = unseal(path.read_bytes())[0]
    assert len(found["curves"]["worst_recall"]) == 3
    repeated = dict(found["curves"])
    del found["curves"]["worst_recall"]
    path.write_text(json.dumps(found))
    assert results.read_file(path).rounds == 3
    assert compare(results.read_file(path).curves, repeated, 3) == (None, {})
    first, _ = compare(results.read_file(path).curves, repeated | {"loss": [0.0] * 3}, 3)
    assert (first.round, first.quantity) == (1, "loss")
    newer = dict(repeated)
    newer["worst_recall"] = [*repeated["worst_recall"][:2], 101.0]
    first, _ = compare(newer, repeated, 3)
    assert (first.round, first.quantity) == (3, "worst_recall"), "where it was recorded it must come out again"


def test_a_damaged_result_is_named(tmp_path):
    cell = cells(find_item("table1"), find_scale("quick"))[0]
    path = results.file_of(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text('{"rounds": 3}')
    with pytest.raises(UserError, match="is no result of a cell"):
        results.read(cell, tmp_path)
