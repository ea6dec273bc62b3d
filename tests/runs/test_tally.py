"""Rounds in which uploads were refused, or nothing arrived, are counted wherever a run's numbers are shown."""

import json
from dataclasses import asdict

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rebafl import cli, parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.interface import Algorithm
from rebafl.paper import items, results
from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.report.comparison import comparison_table
from rebafl.report.summary import group_runs, read_run
from rebafl.runs.record import open_run
from rebafl.runs.tally import Tally, tally
from support.toy import round_line, run_toy

LINES = [
    round_line(active=[0, 1, 2], lost=[2], refused={1: "x"}),
    round_line(active=[0, 1], lost=[0, 1], updated=False),
    round_line(active=[0, 1, 2], lost=[1], missing={1: "late"}, refused={0: "x", 2: "y"}, updated=False),
]


def test_counted_by_hand():
    found = tally(LINES)
    assert found == Tally(rounds=3, uploads=4, refused=3, missing=1, rounds_without_update=2)
    assert str(found) == "refused 3 of 4 uploads, no answer to 1 of 5 requests, 2 of 3 rounds without an update"
    assert found == sum((tally([line]) for line in LINES), Tally())
    assert str(tally(LINES[:1])) == "refused 1 of 2 uploads"
    assert str(Tally(rounds=9, uploads=50)) == ""
    discarded = tally([round_line(active=[0], updated=False, discarded="its loss is infinite")])
    assert discarded.words() == {"no update": "1 of 1", "discarded": "1 of 1"}


def test_numbers_that_say_little_are_warned_of():
    assert tally(LINES).warning.startswith("Most uploads were refused (3 of 4)")
    assert tally(LINES[:1]).warning == "", "half is not most"
    assert tally(LINES[1:2] * 2 + LINES[:1]).warning == "Most rounds brought no new model (2 of 3)."
    assert Tally().warning == ""


@pytest.mark.parametrize("words", [(), ("-q",), ("--json",)])
def test_a_run_most_of_whose_uploads_were_refused_says_so_at_the_end(tmp_path, monkeypatch, words):
    monkeypatch.setitem(KINDS, "spoilt", Spoilt)
    settings = [
        "dataset=fashion-mini",
        "partition.clients=3",
        "partition.samples=20",
        "participation=always",
        "training.epochs=1",
        "workers=1",
        "rounds=1",
        "algorithm=spoilt",
        "algorithm.clients=[0,1]",
    ]
    done = CliRunner().invoke(cli.app, ["run", *settings, f"out={tmp_path / 'r'}", *words])
    assert done.exit_code == 0
    assert "Most uploads were refused (2 of 3)" in " ".join((done.stdout if not words else done.stderr).split())


@parameters
class Spoilt(Algorithm):
    """FedAvg in which some clients fail."""

    name = "spoilt"
    clients: tuple[int, ...] = ()

    def start(self, net, sent, client):
        if client.id in self.clients:
            raise ZeroDivisionError
        return super().start(net, sent, client)


@pytest.fixture
def spoilt(tmp_path, toy, monkeypatch):
    """Two runs: in one nothing goes wrong, in the other 2 of 6 clients fail each time and one round is empty."""
    monkeypatch.setitem(KINDS, "spoilt", Spoilt)
    (tmp_path / "t.csv").write_text("client,first,last\n" + "".join(f"{c},1,2\n" for c in range(6)))
    run_toy(tmp_path / "good", toy, algorithm="fedavg", participation="always")
    bad = {"kind": "spoilt", "clients": [1, 4]}
    run_toy(tmp_path / "bad", toy, algorithm=bad, participation={"kind": "trace", "path": str(tmp_path / "t.csv")})
    return tmp_path


def shown(table):
    console = Console(width=300)
    with console.capture() as text:
        console.print(table)
    return text.get()


def test_the_table_counts_what_was_not_used_and_only_if_there_is_something(spoilt):
    good, bad = read_run(spoilt / "good"), read_run(spoilt / "bad")
    healthy = shown(comparison_table(group_runs([good])))
    assert "refused" not in healthy.lower()
    assert "update" not in healthy
    both = shown(comparison_table(group_runs([good, bad])))
    row = next(line for line in both.splitlines() if "spoilt" in line)
    assert row.split()[-6:] == ["4", "of", "12", "1", "of", "3"]
    assert "no answer" not in both
    assert good.summary() | asdict(Tally(3, 18)) == good.summary()
    assert bad.summary() | asdict(Tally(3, 12, 4, 0, 1)) == bad.summary()


def test_scripts_always_hear_it(spoilt):
    said = CliRunner().invoke(cli.app, ["compare", str(spoilt / "good"), str(spoilt / "bad"), "--json"])
    found = {run["path"].rpartition("/")[2]: run for group in json.loads(said.output) for run in group["runs"]}
    keys = ("uploads", "refused", "missing", "rounds_without_update")
    assert [found["good"][key] for key in keys] == [18, 0, 0, 0]
    assert [found["bad"][key] for key in keys] == [12, 4, 0, 1]


def test_results_of_the_paper_say_it_too(spoilt, monkeypatch):
    file = {
        "methods": {"A": "algorithm=fedavg", "B": "algorithm=fedprox"},
        "scales": {"quick": {"about": "", "words": ["rounds=3"]}},
        "items": {"small": {"title": "", "shows": ["table"], "methods": ["A", "B"], "conditions": {"here": ""}}},
    }
    monkeypatch.setattr(items, "_file", lambda: file)
    two = cells(find_item("small"), find_scale("quick"))
    for cell, name in zip(two, ("good", "bad"), strict=True):
        results.keep(cell, open_run(spoilt / name), spoilt / "results")
    good, bad = (results.read(cell, spoilt / "results") for cell in two)
    assert "refused" not in good.curves
    assert bad.curves["refused"] == [2, 2, 0]
    assert bad.tally == Tally(3, 12, 4, 0, 1)
    assert bad.cut(2).tally == Tally(2, 12, 4, 0, 0)
    found = ItemResults(find_item("small"), find_scale("quick"), spoilt / "results").troubles()
    assert found == ["B, here, seed 0: refused 4 of 12 uploads, 1 of 3 rounds without an update"]
