"""`rebafl paper` as a person types it."""

import json
import time

import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.cli import paper as paper_command
from rebafl.cli.terminal import in_words
from rebafl.cli.words import parse_time
from rebafl.paper import forecast as forecast_module
from rebafl.paper import runner
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs.record import Record
from support.toy import quiet


@pytest.mark.usefixtures("small")
def test_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def paper(*words):
        return CliRunner().invoke(cli.app, ["paper", *words])

    assert "0 of 2" in paper("list").output
    first = paper("run", "small", "--only", "FedAvg", "--seeds", "0,1")
    assert first.exit_code == 0, first.output
    assert "2 cells to run, about" in first.stderr
    assert "1 cells to run" in paper("run", "all").stderr
    assert "All is finished: 2 cells" in paper("run", "all").stderr
    assert "2 of 2" in paper("list").output
    shown = paper("show", "small").output
    assert "It works." in shown
    for name in (
        "small-quick",
        "small-quick-curves",
        "small-quick-table",
        "small-quick-lines",
        "small-quick-diversity",
    ):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    stale, own = (tmp_path / "docs" / "figures" / name for name in ("small-paper-curves.png", "mine.png"))
    stale.touch()
    own.touch()
    report = paper("report")
    assert report.exit_code == 0, report.output
    assert own.exists()
    assert not stale.exists(), "a picture of results that are gone"
    text = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "![Small, scale quick](figures/small-quick.png)" in text
    assert "At the paper's scale: nothing yet." in text
    kept = json.loads(next((tmp_path / "results" / "quick").glob("*.json")).read_text())
    assert {"rounds", "seed", "settings", "environment", "curves", "sha256"} == set(kept)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "tabel1"], "did you mean 'table1'"),
        (["run", "table1", "--scale", "huge"], "--scale: there is no 'huge'"),
        (["run", "table1", "--only", "FedAwg"], "did you mean 'FedAvg'"),
        (["run", "table1", "--where", "cifar-10"], "--where: there is no 'cifar-10'"),
        (["run", "table1", "--seeds", "one"], "--seeds"),
        (["run", "table1", "--budget", "soon"], "--budget: 'soon' is no length of time"),
        (["show", "table1", "--results", "nowhere"], "Nothing of table1 is finished"),
    ],
)
def test_mistakes_are_named(words, reason):
    error = CliRunner().invoke(cli.app, ["paper", *words]).exception
    assert isinstance(error, UserError)
    assert reason in str(error)


def test_budgets_and_times():
    assert [parse_time(text) for text in ("2h", "45m", "1h30m", "90s", "90")] == [7200, 2700, 5400, 90, 90]
    assert [in_words(seconds) for seconds in (42, 600, 7200)] == ["42 s", "10 min", "2.0 h"]


@pytest.mark.usefixtures("small")
def test_the_forecast_of_a_resumed_cell_uses_the_rounds_it_has(tmp_path, monkeypatch):
    cell = cells(find_item("small"), find_scale("paper"))[0]
    with pytest.raises(runner.OutOfTime):
        runner.run_cell(cell, tmp_path / "results", tmp_path / "work", time.monotonic(), quiet, quiet)
    monkeypatch.setattr(forecast_module, "_measured", lambda experiment: forecast_module.Speed(1000.0, 1000.0))
    (forecast,) = paper_command._forecasts([cell], tmp_path / "work").values()
    (line,) = Record(tmp_path / "work" / cell.key).rounds()
    assert forecast.done == 1
    assert forecast.seconds_left() == pytest.approx(line.seconds * sum(forecast.rounds[1:]) / forecast.rounds[0])
