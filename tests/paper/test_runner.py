"""Cells resume to the bit."""

import time

import pytest

from rebafl.paper import results, runner
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs.record import Record
from support.toy import quiet


@pytest.mark.usefixtures("small")
def test_a_cell_out_of_time_goes_on_and_its_result_is_the_curve_to_the_bit(tmp_path):
    cell = cells(find_item("small"), find_scale("paper"))[1]
    with pytest.raises(runner.OutOfTime):
        runner.run_cell(cell, tmp_path / "results", tmp_path / "work", time.monotonic(), quiet, quiet)
    assert len(Record(tmp_path / "work" / cell.key).rounds()) == 1
    assert results.read(cell, tmp_path / "results") is None
    runner.run_cell(cell, tmp_path / "results", tmp_path / "work", float("inf"), quiet, quiet)
    result = results.read(cell, tmp_path / "results")
    again = tmp_path / "again"
    runner.run_cell(cell, again / "results", again / "work", float("inf"), quiet, quiet)
    for name in ("accuracy", "loss", "diversity"):
        assert result.curves[name] == results.read(cell, again / "results").curves[name]
    assert result.environment["torch"]
    assert result.settings["seed"] == 0
    assert results.missing(cells(find_item("small"), find_scale("paper")), tmp_path / "results") == [
        cells(find_item("small"), find_scale("paper"))[0]
    ]
