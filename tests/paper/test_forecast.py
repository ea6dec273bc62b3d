"""How long cells will take is predicted, and corrected by the rounds that are done."""

from dataclasses import replace

import pytest

from rebafl.paper import forecast, results, runner
from rebafl.paper.forecast import Forecast, Forecaster, busiest, seconds_left, slowdown
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs.experiment import prepare
from support.toy import quiet, round_line


@pytest.mark.parametrize(
    ("sizes", "workers", "most"),
    [([], 2, 0), ([5], 2, 5), ([1, 1, 1], 2, 2), ([4, 1, 1, 1], 2, 4), ([1] * 9, 4, 3), ([3, 3], 1, 6)],
)
def test_the_busiest_worker_decides(sizes, workers, most):
    assert busiest(sizes, workers) == most


@pytest.mark.usefixtures("small")
def test_a_forecast_knows_who_will_be_there_in_forecasts_round(monkeypatch):
    """And how much each has: a few rounds that happen to be small must not stand for all."""
    cell = cells(find_item("small"), find_scale("paper"))[0]
    settings = replace(cell.settings, workers=2, rounds=30)
    measured = []

    def measure(experiment):
        measured.append(1)
        return forecast.Speed(0.5, 7.0)

    monkeypatch.setattr(forecast, "_measured", measure)
    forecaster = Forecaster()
    predicted = forecaster.forecast(replace(cell, settings=settings))
    experiment = prepare(settings)
    active = [len(experiment.roster(number).arrives) for number in range(1, 31)]
    assert len(set(active)) > 2
    assert predicted.rounds == [-(-count // 2) * 20 * 1 * 0.5 + 7.0 for count in active]
    forecaster.forecast(replace(cell, settings=replace(settings, seed=1)))
    assert measured == [1], "a method is measured once"


def test_rounds_that_are_done_correct_the_forecast():
    first, second = Forecast([10.0, 30.0, 20.0]), Forecast([10.0, 10.0])
    forecasts = [first, second]
    assert (first.seconds_left(), slowdown(forecasts), seconds_left(forecasts)) == (60, 1.0, 80)
    first.correct(round_line(round=1, seconds=20.0))
    assert (first.seconds_left(), slowdown(forecasts), seconds_left(forecasts)) == (100, 2.0, 140)
    first.correct(round_line(round=2, seconds=40.0))  # 60 for 40
    assert first.seconds_left() == pytest.approx(30)
    assert seconds_left(forecasts) == pytest.approx(30 + 30)
    second.correct(round_line(round=1, seconds=10.0))  # a cell goes by its own rounds
    assert seconds_left(forecasts) == pytest.approx(30 + 10)
    second.correct(round_line(round=3, seconds=99.0))  # of a run that is longer than asked for
    assert second.seconds_left() == 10


@pytest.mark.usefixtures("small")
def test_what_is_measured_is_about_what_it_takes(tmp_path):
    """Generously: this machine may be busy with other things."""
    cell = cells(find_item("small"), find_scale("paper"))[0]
    cell = replace(cell, settings=replace(cell.settings, workers=1))
    predicted = Forecaster().forecast(cell)
    runner.run_cell(cell, tmp_path / "results", tmp_path / "work", float("inf"), quiet, quiet)
    taken = sum(results.read(cell, tmp_path / "results").curves["seconds"])
    assert taken / 20 < sum(predicted.rounds) < taken * 20
