"""Results of cells: what is measured of them, and that damage is noticed."""

import json
import re

import pytest

from rebafl.base.errors import UserError
from rebafl.base.sealed import unseal
from rebafl.paper import results
from rebafl.paper.items import cells, find_item, find_scale
from support.damage import flips
from support.paper import made
from support.toy import run_toy


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
    assert result.measure("late") == 75.0
    assert result.measure("accuracy") == pytest.approx((50 + 90 + 150 * 5) / 12)
    assert result.measure("diversity") == 2.0
    assert result.measure("bytes_up") == 3.0
    assert result.cut(1).measure("best") == 50.0


def test_swing_is_of_rounds_and_not_of_what_is_learned():
    """A curve that only rises is steady, however steep; its standard deviation would say otherwise."""
    assert made([float(n) for n in range(20)]).measure("swing") == 1.0
    assert made([0.0, 0.0, 10.0, 4.0, 9.0, 9.0]).measure("swing") == 2.5, "the second half only"
    assert made([5.0]).measure("swing") == 0.0


def test_a_damaged_result_is_named(tmp_path):
    cell = cells(find_item("table1"), find_scale("quick"))[0]
    path = results.file_of(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text('{"rounds": 3}')
    with pytest.raises(UserError, match="is no result of a cell"):
        results.read(cell, tmp_path)
