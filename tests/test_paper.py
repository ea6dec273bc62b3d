"""The paper as data: every item can be run, its cells resume, results are kept, and verdicts follow the rules."""

import json
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.cli import paper as paper_command
from rebafl.cli.paper import in_words, parse_time
from rebafl.paper import items, results, runner, verdicts
from rebafl.paper.items import Claim, Item, cells, cells_of, find_item, find_scale, item_names, printed
from rebafl.paper.results import Result
from rebafl.report.paper_figures import look
from rebafl.report.reproduction import Shown, page
from rebafl.runs.record import Record


@pytest.mark.parametrize("name", item_names())
@pytest.mark.parametrize("scale", ["paper", "quick"])
def test_every_cell_has_settings_and_every_claim_speaks_of_methods_that_are_run(name, scale):
    item = find_item(name)
    every = cells(item, find_scale(scale), seeds=(0, 1))
    assert len(every) == 2 * len(item.methods) * len(item.conditions)
    same = 4 if name == "fig-hyper" else 0  # μ = 0 is ε = 0.01, on two data sets with two seeds
    assert len({cell.key for cell in every}) == len(every) - same
    for claim in item.claims:
        sides = [side.partition(items.AT) for pair in claim.pairs for side in (*pair, *(claim.ratio or ()))]
        assert {method for method, _, _ in sides} - {items.OTHERS, items.EVERY} <= set(item.methods)
        assert {condition for _, at, condition in sides if at} | set(claim.where) <= set(item.conditions)
    grouped = [method for methods in item.panels.values() for method in methods]
    assert not grouped or grouped == list(item.methods)


@pytest.mark.parametrize("name", item_names())
def test_methods_in_one_picture_are_told_apart_in_colour_and_in_grey(name):
    item = find_item(name)
    for methods in item.panels.values() or [item.methods]:
        looks = [look(method, place) for place, method in enumerate(methods)]
        assert len({(each["color"], each["linestyle"]) for each in looks}) == len(methods)
        assert len({each["marker"] for each in looks}) == len(methods)


def test_the_papers_scale_is_the_papers():
    for cell in cells(find_item("table1"), find_scale("paper")):
        s = cell.settings
        assert (s.rounds, s.partition.samples, s.partition.classes, s.participation.p) == (200, 1000, 2, 0.5)
        assert (s.training.epochs, s.training.batch, s.training.weight_decay) == (5, 50, 5e-4)
        assert s.training.lr == (0.02 if s.dataset == "cifar-10" else 0.01)
        assert s.training.transform == ("crop-flip" if s.dataset == "cifar-10" else "none")


def test_the_quick_scale_keeps_what_the_paper_uses_for_the_data_set():
    cell = cells_of([find_item("ablation")], find_scale("quick"), [0], ["R-BSM"], ["CIFAR-10, clustered"])[0]
    s = cell.settings
    assert (s.dataset, s.model.kind, s.training.lr, s.training.transform) == (
        "cifar-mini",
        "cifar-cnn",
        0.02,
        "crop-flip",
    )
    assert (s.partition.name, s.partition.samples, s.participation.p) == ("clustered", 100, (0.5, 0.5, 0.3, 0.3, 0.2))
    assert (s.rounds, s.algorithm.mu, s.algorithm.eps) == (20, 0, 0.01)


def test_cells_that_items_share_are_one_run():
    first, second = (cells(find_item(name), find_scale("paper")) for name in ("table1", "ablation"))
    shared = {cell.key for cell in first} & {cell.key for cell in second}
    assert len(shared) == 4, "FedAvg and ReBaFL at m = 20, on both data sets"


def test_printed_numbers_are_found():
    assert printed(find_item("table1"), "cifar-10 m=50", "ReBaFL") == 68.59
    assert printed(find_item("ablation"), "CIFAR-10, clustered", "F-Aug") == 58.85
    assert printed(find_item("clustered"), "fashion-mnist", "MOON") == 72.6
    assert printed(find_item("table-scale"), "m=500", "Scaffold") == 16.12
    assert printed(find_item("fig-prelim"), "CIFAR-10, m = 50, p = 0.2", "FedAvg") is None


def made(accuracy, seed=0, **curves):
    rounds = len(accuracy)
    return Result(rounds, seed, {}, {}, {"accuracy": accuracy, "active": [2] * rounds, **curves})


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


CLAIM = Claim("a is above b", "best", pairs=(("a", "b"),))
ACROSS = Claim("two is above one", "best", pairs=(("every @ two", "every @ one"),))
ITEM = Item("x", "X", ("table",), ("a", "b"), {"one": "", "two": ""}, claims=(CLAIM,))


@pytest.mark.parametrize(
    ("claim", "one", "two", "decision"),
    [
        (CLAIM, (80, 70), (80, 70), "held"),
        (CLAIM, (80, 70), (70, 80), "did not hold"),
        (CLAIM, (80, 70), (80.2, 80), "too close"),
        (CLAIM, (80, 70), None, "partly run"),
        (CLAIM, (70, 80), None, "did not hold"),
        (CLAIM, None, None, "not run"),
        (replace(CLAIM, where=("one",)), (80, 70), (70, 80), "held"),
        (replace(CLAIM, where=("one",)), (80, 70), None, "held"),
        (replace(CLAIM, slack=3.0), (78, 80), (80, 70), "held"),
        (replace(CLAIM, slack=3.0), (76, 80), (80, 70), "did not hold"),
        (replace(CLAIM, threshold=20.0), (80, 70), (80, 70), "too close"),
        (ACROSS, (70, 60), (80, 70), "held"),
        (ACROSS, (70, 80), (80, 70), "did not hold"),
        (ACROSS, (70, 60), None, "not run"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), (12, 10), "held"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), (13, 10), "did not hold"),
        (Claim("", "best", ratio=("a", "b"), most=1.2), (11, 10), None, "partly run"),
    ],
)
def test_verdicts_follow_the_rules(claim, one, two, decision):
    table = {"one": one, "two": two}

    def lookup(method, condition):
        return {0: made([table[condition]["ab".index(method)]])} if table[condition] else {}

    assert verdicts.judge(ITEM, claim, lookup).decision == decision


def test_a_peak_that_the_second_half_does_not_confirm_is_said(tmp_path):
    """The first method has the best round, the other is ahead all the time."""
    item, shown = replace(ITEM, conditions={"one": ""}), {"a": [50.0, 50.0, 90.0, 50.0], "b": [80.0] * 4}
    found = Shown(item, find_scale("quick"), tmp_path)
    found.__dict__["results"] = {(method, "one"): {0: made(curve)} for method, curve in shown.items()}
    (verdict,) = found.verdicts()
    assert (verdict.decision, verdict.otherwise) == ("held", "did not hold")
    assert verdict.evidence == "one: a − b = +10.00; by the second half did not hold: one: a − b = -10.00"


@pytest.mark.parametrize(("first", "decision"), [((75, 69, 68), "too close"), ((75, 73, 74), "held")])
def test_over_several_seeds_a_difference_must_exceed_its_standard_error(first, decision):
    """+5, -1, -2 is +0.67 on average: more than half a point, and nothing."""
    found = {"a": {n: made([value]) for n, value in enumerate(first)}, "b": {n: made([70.0]) for n in range(3)}}
    verdict = verdicts.judge(ITEM, CLAIM, lambda method, condition: found[method])
    assert verdict.decision == decision
    assert "3 seeds" in verdict.evidence


def test_methods_are_compared_on_the_seeds_both_have_and_others_means_all_others():
    found = {
        ("a", "one"): {0: made([80.0]), 1: made([10.0])},
        ("b", "one"): {0: made([70.0]), 2: made([99.0])},
        ("c", "one"): {0: made([79.9])},
    }
    claim, item = Claim("", "best", (("a", "others"),)), replace(ITEM, methods=("a", "b", "c"))
    verdict = verdicts.judge(item, claim, lambda method, condition: found.get((method, condition), {}))
    assert verdict.decision == "partly run"
    assert verdict.evidence == "one: a − c = +0.10; 2 of 4 comparisons not run"


@pytest.fixture
def small(monkeypatch):
    """An item that takes seconds."""
    tiny = "dataset=fashion-mini partition.clients=4 partition.samples=20 training.epochs=1"
    file = {
        "deviations": ["none"],
        "methods": {"FedAvg": "algorithm=fedavg", "ReBaFL": "algorithm=rebafl"},
        "scales": {"paper": {"about": "a", "words": ["rounds=3"]}, "quick": {"about": "b", "words": ["rounds=2"]}},
        "items": {
            "small": {
                "title": "Small", "shows": ["bars", "curves", "table", "lines", "diversity"],
                "methods": ["FedAvg", "ReBaFL"], "conditions": {"here": tiny},
                "claims": [{"text": "It works.", "measure": "best", "pairs": [["ReBaFL", "FedAvg"]]}],
            }
        },
    }  # fmt: skip
    monkeypatch.setattr(items, "_file", lambda: file)


def quiet(*_):
    pass


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
    assert "At scale `paper`: pending." in text
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


def test_a_damaged_result_is_named(tmp_path):
    cell = cells(find_item("table1"), find_scale("quick"))[0]
    path = results.file_of(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text('{"rounds": 3}')
    with pytest.raises(UserError, match="is no result of a cell"):
        results.read(cell, tmp_path)


def test_budgets_and_times():
    assert [parse_time(text) for text in ("2h", "45m", "1h30m", "90s", "90")] == [7200, 2700, 5400, 90, 90]
    assert [in_words(seconds) for seconds in (42, 600, 7200)] == ["42 s", "10 min", "2.0 h"]


def test_the_page_lists_what_is_pending_and_every_deviation(tmp_path):
    text = page(tmp_path, lambda shown: [], {})
    assert text.count("pending") >= 2 * len(item_names())
    assert all(deviation in text for deviation in items.deviations())
    assert not Shown(find_item("table1"), find_scale("paper"), tmp_path).results


def test_the_papers_own_numbers_are_judged_by_the_same_rules(tmp_path):
    """By half a point ReBaFL's lead over FedDyn is too close in two columns; of the clustered setting see the note."""
    text = page(tmp_path, lambda shown: [], {})
    assert "| ReBaFL achieves the highest test accuracy in every setting. | too close | not run |" in text
    assert "| The accuracy of all methods decreases with m. | held | not run |" in text


def test_seconds_are_judged_by_the_benchmark(tmp_path):
    for ratio, decision in ((1.1, "**held**"), (1.3, "**did not hold**")):
        text = page(tmp_path, lambda shown: [], {"rebafl_to_fedavg": {"ratio": ratio, "spread": [1.0, 1.5]}})
        assert f"seconds a round). |  | {decision} | not run | paper: rounds in turn" in text


def test_longer_runs_are_compared_over_the_same_rounds_and_any_seed_is_found(tmp_path):
    cell = cells(find_item("table1"), find_scale("quick"), seeds=(42,))[0]
    rounds = cell.settings.rounds + 5
    kept = {"rounds": rounds, "seed": 42, "settings": {}, "environment": {}}
    curves = {"accuracy": [10.0] * cell.settings.rounds + [99.0] * 5}
    path = results.file_of(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(kept | {"curves": curves}))
    shown = Shown(find_item("table1"), find_scale("quick"), tmp_path)
    assert shown.lookup(cell.method, cell.condition)[42].measure("best") == 10.0
    assert not shown.comparable, "one curve alone"
    first, *rest = shown.pending.split("; ")
    assert first == f"{cell.condition}: {', '.join(m for m in shown.item.methods if m != cell.method)}"
    assert rest == [f"{condition}: all" for condition in shown.item.conditions if condition != cell.condition]


def test_tables_and_figures_show_the_seeds_that_all_methods_have(tmp_path):
    """A mean over five seeds beside one of a single seed would compare draws of data, not methods."""
    item = find_item("table1")
    for method, seeds in (("FedAvg", (0, 1)), ("ReBaFL", (1,))):
        for cell in cells_of([item], find_scale("quick"), seeds, [method], ["cifar-10 m=20"]):
            path, rounds = results.file_of(cell, tmp_path), cell.settings.rounds
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = {"rounds": rounds, "seed": cell.settings.seed, "settings": {}, "environment": {}}
            path.write_text(json.dumps(kept | {"curves": {"accuracy": [10.0 + cell.settings.seed] * rounds}}))
    shown = Shown(item, find_scale("quick"), tmp_path)
    assert list(shown.lookup("FedAvg", "cifar-10 m=20")) == [0, 1]
    assert list(shown.compared("FedAvg", "cifar-10 m=20")) == [1]
    assert shown.tables()[0][1][1] == [
        ("FedAvg", "11.00", "11.00", "0.00", "1"),
        ("ReBaFL", "11.00", "11.00", "0.00", "1"),
    ]


# --- how long it will take


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
    monkeypatch.setattr(runner, "_measured", lambda experiment: measured.append(1) or runner.Speed(0.5, 7.0))
    pace = runner.Pace()
    forecast = pace.forecast(replace(cell, settings=settings))
    experiment = runner.prepare(settings)
    there = [len(experiment.roster(number).arrives) for number in range(1, 31)]
    assert len(set(there)) > 2
    assert forecast.rounds == [-(-count // 2) * 20 * 1 * 0.5 + 7.0 for count in there]
    pace.forecast(replace(cell, settings=replace(settings, seed=1)))
    assert measured == [1], "a method is measured once"


def test_rounds_that_are_done_correct_the_forecast():
    first, second = runner.Forecast([10.0, 30.0, 20.0]), runner.Forecast([10.0, 10.0])
    every = [first, second]
    assert (first.left(), runner.slower(every), runner.all_left(every)) == (60, 1.0, 80)
    first.hear({"round": 1, "seconds": 20.0})
    assert (first.left(), runner.slower(every), runner.all_left(every)) == (100, 2.0, 140)
    first.hear({"round": 2, "seconds": 40.0})  # 60 for 40
    assert first.left() == pytest.approx(30)
    assert runner.all_left(every) == pytest.approx(30 + 30)
    second.hear({"round": 1, "seconds": 10.0})  # a cell goes by its own rounds
    assert runner.all_left(every) == pytest.approx(30 + 10)
    second.hear({"round": 3, "seconds": 99.0})  # of a run that is longer than asked for
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


@pytest.mark.usefixtures("small")
def test_going_on_with_a_cell_goes_by_the_rounds_it_has(tmp_path, monkeypatch):
    cell = cells(find_item("small"), find_scale("paper"))[0]
    with pytest.raises(runner.OutOfTime):
        runner.run_cell(cell, tmp_path / "results", tmp_path / "work", time.monotonic(), quiet, quiet)
    monkeypatch.setattr(runner, "_measured", lambda experiment: runner.Speed(1000.0, 1000.0))
    (forecast,) = paper_command._forecasts([cell], tmp_path / "work").values()
    (line,) = Record(tmp_path / "work" / cell.key).rounds()
    assert forecast.done == 1
    assert forecast.left() == pytest.approx(line["seconds"] * sum(forecast.rounds[1:]) / forecast.rounds[0])
