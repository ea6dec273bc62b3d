"""Cells resume to the bit, and how long they will take is foretold."""

import time
from dataclasses import replace

import pytest

from rebafl.paper import results, runner
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs.experiment import prepare
from rebafl.runs.record import Record
from support.toy import quiet, round_line


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


@pytest.mark.parametrize(
    ("sizes", "workers", "most"),
    [([], 2, 0), ([5], 2, 5), ([1, 1, 1], 2, 2), ([4, 1, 1, 1], 2, 4), ([1] * 9, 4, 3), ([3, 3], 1, 6)],
)
def test_the_busiest_worker_decides(sizes, workers, most):
    assert runner.busiest(sizes, workers) == most


@pytest.mark.usefixtures("small")
def test_a_forecast_knows_who_will_be_there_in_every_round(monkeypatch):
    """And how much each has: a few rounds that happen to be small must not stand for all."""
    cell = cells(find_item("small"), find_scale("paper"))[0]
    settings = replace(cell.settings, workers=2, rounds=30)
    measured = []

    def measure(experiment):
        measured.append(1)
        return runner.Speed(0.5, 7.0)

    monkeypatch.setattr(runner, "_measured", measure)
    pace = runner.Pace()
    forecast = pace.forecast(replace(cell, settings=settings))
    experiment = prepare(settings)
    there = [len(experiment.roster(number).arrives) for number in range(1, 31)]
    assert len(set(there)) > 2
    assert forecast.rounds == [-(-count // 2) * 20 * 1 * 0.5 + 7.0 for count in there]
    pace.forecast(replace(cell, settings=replace(settings, seed=1)))
    assert measured == [1], "a method is measured once"


def test_rounds_that_are_done_correct_the_forecast():
    first, second = runner.Forecast([10.0, 30.0, 20.0]), runner.Forecast([10.0, 10.0])
    every = [first, second]
    assert (first.left(), runner.slower(every), runner.all_left(every)) == (60, 1.0, 80)
    first.hear(round_line(round=1, seconds=20.0))
    assert (first.left(), runner.slower(every), runner.all_left(every)) == (100, 2.0, 140)
    first.hear(round_line(round=2, seconds=40.0))  # 60 for 40
    assert first.left() == pytest.approx(30)
    assert runner.all_left(every) == pytest.approx(30 + 30)
    second.hear(round_line(round=1, seconds=10.0))  # a cell goes by its own rounds
    assert runner.all_left(every) == pytest.approx(30 + 10)
    second.hear(round_line(round=3, seconds=99.0))  # of a run that is longer than asked for
    assert second.left() == 10


@pytest.mark.usefixtures("small")
def test_what_is_measured_is_about_what_it_takes(tmp_path):
    """Generously: this machine may be busy with other things."""
    cell = cells(find_item("small"), find_scale("paper"))[0]
    cell = replace(cell, settings=replace(cell.settings, workers=1))
    forecast = runner.Pace().forecast(cell)
    runner.run_cell(cell, tmp_path / "results", tmp_path / "work", float("inf"), quiet, quiet)
    taken = sum(results.read(cell, tmp_path / "results").curves["seconds"])
    assert taken / 20 < sum(forecast.rounds) < taken * 20
