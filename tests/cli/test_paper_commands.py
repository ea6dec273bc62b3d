"""`rebafl paper` as a person types it."""

import json
import re
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.cli import paper_run
from rebafl.cli.terminal import in_words
from rebafl.cli.words import parse_time
from rebafl.paper import forecast as forecast_module
from rebafl.paper import runner
from rebafl.paper.forecast import Forecast
from rebafl.paper.items import Claim, cells, cells_of, find_item, find_scale
from rebafl.report.reproduction import Page
from rebafl.runs.record import Record
from support.paper import keep_made
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
    for name in ("small-quick", "small-quick-curves", "small-quick-lines", "small-quick-diversity"):
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
        (["run", "table1", "--only", "FEDTRACK"], "there is no 'FEDTRACK' (did you mean 'FedTrack'?)"),
        (["run", "all", "cost"], "'all' stands alone, for every item"),
        (["run", "table1", "--where", "cifar-10"], "--where: there is no 'cifar-10'"),
        (["run", "table1", "--seeds", "one"], "--seeds"),
        (["run", "table1", "--seeds", "0,-1"], "--seeds: -1 is none"),
        (["run", "--open-claims", "--seeds", str(2**63)], f"--seeds: {2**63} is none"),
        (["run", "table1", "--budget", "soon"], "--budget: 'soon' is no length of time"),
        (
            ["show", "table1", "--results", "nowhere"],
            "There is no folder nowhere here (--results names the folder of finished cells)",
        ),
        (
            ["show", "table1", "--results", "tests"],
            "Nothing of table1 is finished at scale quick; run: rebafl paper run",
        ),
        (["run"], "Which items should be run?"),
        (["run", "--list"], "Which items should be run?"),
        (["run", "--open-claims", "--only", "FedAvg"], "does not go with --only"),
        (["run", "--open-claims", "--where", "s = 2"], "does not go with --where"),
        (["run", "--open-claims", "--rounds", "3"], "does not go with --rounds"),
        (["run", "--open-claims", "--seeds", "0,1"], "--open-claims runs each cell with one seed"),
        (["run", "tabel1", "--open-claims"], "did you mean 'table1'"),
        (["run", "--open-claims", "--scale", "huge"], "--scale: there is no 'huge'"),
    ],
)
def test_mistakes_are_named(words, reason):
    error = CliRunner().invoke(cli.app, ["paper", *words]).exception
    assert isinstance(error, UserError)
    assert reason in str(error)


def test_a_list_without_a_folder_of_results_says_so(tmp_path):
    said = "There is no folder {} here (--results names the folder of finished cells)."
    for folder, expected in ((tmp_path / "nowhere", True), (tmp_path, False)):
        output = CliRunner().invoke(cli.app, ["paper", "list", "--results", str(folder)]).output
        assert output.startswith(said.format(folder)) is expected
        assert "0 of 182" in output


def test_the_list_ends_with_each_cell_counted_once_as_the_page_counts_it(tmp_path):
    """FedAvg at m = 20 is a cell of table1, ablation and others; FedTrack is none of the paper's."""
    paper, table1 = find_scale("paper"), [find_item("table1")]
    of_paper = cells_of(table1, paper, [0, 3], ["FedAvg", "ReBaFL"], ["cifar-10 m=20"])
    for cell in (*of_paper, *cells_of(table1, paper, [0], ["FedTrack"], ["cifar-10 m=20"])):
        keep_made(cell, tmp_path, 50.0)
    lines = CliRunner().invoke(cli.app, ["paper", "list", "--results", str(tmp_path)]).output.splitlines()
    table = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    rows = {name or title: counts for name, title, *counts in table}
    assert (rows["table1"][0], rows["ablation"][0]) == ("2 of 40", "2 of 16")
    assert rows["all"] == ["2 of 182", "0 of 182"]
    assert "**. 2 of 182 cells are finished there." in Page(tmp_path, {}).text()
    assert rows["beside them: further seeds of these cells"] == ["2", "0"]
    assert rows["beside them: methods of this project (FedTrack)"] == ["1", "0"]


def test_an_item_is_shown_with_its_note_and_with_what_the_papers_own_numbers_decide(tmp_path):
    item = find_item("clustered")
    for cell in cells(item, find_scale("quick"))[:2]:
        keep_made(cell, tmp_path, 50.0)
    words = ["paper", "show", "clustered", "--results", str(tmp_path), "--out", str(tmp_path)]
    shown = CliRunner().invoke(cli.app, words).output
    assert item.note in shown
    assert re.findall(r"the paper's own numbers, by the same rules: (.+)", shown) == ["held", "did not hold"]


def test_the_claim_on_seconds_is_shown_by_what_the_benchmark_measured(tmp_path):
    """At the paper's scale, whose epochs and images the benchmark has."""
    for scale in ("paper", "quick"):
        for cell in cells(find_item("cost"), find_scale(scale)):
            keep_made(cell, tmp_path, 50.0, bytes_up=1, bytes_down=1, active=1)
    race = tmp_path / "race.json"
    race.write_text('{"rebafl_to_fedavg": {"ratio": 1.12, "spread": [1.0, 1.15]}}')
    words = ["paper", "show", "cost", "--results", str(tmp_path), "--out", str(tmp_path), "--race", str(race)]
    for scale, decision in (("paper", "held"), ("quick", "not run")):
        shown = CliRunner().invoke(cli.app, [*words, "--scale", scale]).output
        assert f"{decision}: Prototypes cost little time" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "There is no file"),
        ("[]", "cannot be read"),
        ("{", "cannot be read"),
        ('{"rebafl_to_fedavg": 3}', "cannot be read"),
        ('{"rebafl_to_fedavg": {"ratio": 1.1, "spread": []}}', "cannot be read"),
        ('{"rebafl_to_fedavg": {"ratio": 1.1, "spread": [1.2, 1.3]}}', "is no ratio of seconds"),
        ('{"rebafl_to_fedavg": {"ratio": NaN, "spread": [1.0, 1.2]}}', "is no ratio of seconds"),
        ('{"rebafl_to_fedavg": {"ratio": 1.1, "spread": [1.0, Infinity]}}', "is no ratio of seconds"),
    ],
)
def test_what_is_no_benchmark_is_refused(tmp_path, text, said):
    race = tmp_path / "race.json"
    if text is not None:
        race.write_text(text)
    for words in (("show", "cost"), ("report", "--page", str(tmp_path / "page.md"))):
        result = CliRunner().invoke(cli.app, ["paper", *words, "--race", str(race), "--results", str(tmp_path)])
        assert isinstance(result.exception, UserError)
        assert said in str(result.exception)


@pytest.mark.usefixtures("small")
def test_open_claims_are_listed_then_run_until_they_are_decided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecast_module, "_measured", lambda experiment: forecast_module.Speed(0.01, 0.01))

    def paper(*words):
        done = CliRunner().invoke(cli.app, ["paper", "run", "--open-claims", *words])
        assert done.exit_code == 0, done.output
        return done

    listed = paper("--list")
    assert re.search(r"small\.1 .+It works\. .+ 2 ", listed.stdout)
    rows = re.findall(r"(\w+), here, seed 0 .+ small\.1", listed.stdout)
    assert sorted(rows) == ["FedAvg", "ReBaFL"]
    assert "2 cells for 1 open claims, about" in listed.stderr
    assert not (tmp_path / "results").exists(), "only listed"
    stopped = paper("--budget", "0s")
    assert "Time is up after 0 of 2 cells. Resume with the same command." in stopped.stderr
    (begun,) = (tmp_path / "runs" / "paper" / "paper").iterdir()
    assert len(Record(begun).rounds()) == 1
    done = paper()
    assert "[2/2]" in done.stderr
    assert "Decided: small.1, It works." in done.stderr
    assert len(list((tmp_path / "results" / "paper").glob("*.json"))) == 2, "at the paper's scale"
    assert "No claim of these items is open at scale paper" in paper().stderr
    assert "1 open claims" in paper("--list", "--scale", "quick").stderr


@pytest.mark.usefixtures("small")
def test_what_is_missing_of_an_item_can_be_listed_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecast_module, "_measured", lambda experiment: forecast_module.Speed(0.01, 0.01))
    done = CliRunner().invoke(cli.app, ["paper", "run", "small", "--list", "--seeds", "3"])
    assert done.exit_code == 0, done.output
    assert re.findall(r"\w+, here, seed \d", done.stdout) == ["FedAvg, here, seed 3", "ReBaFL, here, seed 3"]
    assert "2 cells to run, about" in done.stderr
    assert list(tmp_path.iterdir()) == []
    told = re.sub(r"[\s│]+", " ", CliRunner().invoke(cli.app, ["paper", "run", "--help"]).output)
    assert "measured now by training briefly" in told, "it only lists, and takes seconds all the same"


def test_what_claims_no_longer_need_is_not_run(tmp_path, monkeypatch):
    """The first comparison of two is a clear opposite: the claim is decided, and the other's cells are left out."""
    item = find_item("table1")
    claim = Claim("ReBaFL is first", "best", pairs=(("ReBaFL", "FedAvg"), ("ReBaFL", "MOON")), where=("cifar-10 m=20",))
    monkeypatch.setattr(paper_run, "find_items", lambda names: [replace(item, claims=(claim,))])
    speeds = {"FedAvg": 1.0, "ReBaFL": 1.0, "MOON": 9.0}
    monkeypatch.setattr(
        paper_run, "_forecasts", lambda left, work: {cell.key: Forecast([speeds[cell.method]]) for cell in left}
    )
    ran = []

    def run_cell(cell, results, *_):
        ran.append(cell.method)
        keep_made(cell, results, {"FedAvg": 60.0, "ReBaFL": 50.0}[cell.method])

    monkeypatch.setattr(paper_run, "run_cell", run_cell)
    words = ["paper", "run", "--open-claims", "--results", str(tmp_path), "--work", str(tmp_path / "work")]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert sorted(ran) == ["FedAvg", "ReBaFL"], "MOON decides nothing any more"
    assert "3 cells for 1 open claims" in done.stderr
    assert "Finished: 2 cells" in done.stderr


def test_budgets_and_times():
    assert [parse_time(text) for text in ("2h", "45m", "1h30m", "90s", "90")] == [7200, 2700, 5400, 90, 90]
    assert [in_words(seconds) for seconds in (42, 600, 7200)] == ["42 s", "10 min", "2.0 h"]


@pytest.mark.usefixtures("small")
def test_the_forecast_of_a_resumed_cell_uses_the_rounds_it_has(tmp_path, monkeypatch):
    cell = cells(find_item("small"), find_scale("paper"))[0]
    with pytest.raises(runner.OutOfTime):
        runner.run_cell(cell, tmp_path / "results", tmp_path / "work", time.monotonic(), quiet, quiet)
    monkeypatch.setattr(forecast_module, "_measured", lambda experiment: forecast_module.Speed(1000.0, 1000.0))
    (forecast,) = paper_run._forecasts([cell], tmp_path / "work").values()
    (line,) = Record(tmp_path / "work" / cell.key).rounds()
    assert forecast.done == 1
    assert forecast.seconds_left() == pytest.approx(line.seconds * sum(forecast.rounds[1:]) / forecast.rounds[0])
