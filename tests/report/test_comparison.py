"""Tables say what papers ask: how good, by how much, and at what price; in windows of any width."""

import io
import json
from itertools import product

import pytest
from rich.table import Table
from typer.testing import CliRunner

from rebafl import UserError, cli
from rebafl.cli import terminal
from rebafl.cli.terminal import PlainConsole
from rebafl.report.comparison import comparison_json, comparison_table, further_tables, paired_table
from rebafl.report.summary import group_runs, read_run
from support.toy import round_line
from support.views import written_run


def a_run(path, accuracies, **settings):
    lines = [
        round_line(round=number, accuracy=value, recall=[value, 90.0], loss=2.0 / number, active=[0, 1],
                   bytes_up=1_000_000, bytes_down=500_000, seconds=2.0)
        for number, value in enumerate(accuracies, 1)
    ]  # fmt: skip
    return written_run(path, lines, 4, rounds=len(lines), **settings).path


@pytest.fixture
def folder(tmp_path):
    """FedAvg and FedProx with seeds 0, 1, 2: FedProx is better by 1, 2 and 3 points; and a FedRS with another seed."""
    for seed in range(3):
        a_run(tmp_path / f"avg{seed}", [10.0, 40.0 + seed], algorithm="fedavg", seed=seed)
        a_run(tmp_path / f"prox{seed}", [10.0, 42.0 + 3 * seed], algorithm="fedprox", seed=seed)
    a_run(tmp_path / "rs", [60.0, 50.0], algorithm="fedrs", seed=7)
    return tmp_path


def groups_of(folder):
    return group_runs([read_run(path) for path in sorted(folder.iterdir()) if path.is_dir()])


def texts(table: Table) -> dict[str, list[str]]:
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


def test_price_of_an_accuracy(folder):
    found = texts(further_tables(groups_of(folder), 42.0, "last")[0])
    assert found["run"] == ["fedavg", "fedprox", "fedrs"]
    assert found["rounds to\n42 %"] == ["2.0 (1 of 3)", "2.0", "1.0"]
    assert found["MB to\n42 %"] == ["3.0 (1 of 3)", "3.0", "1.5"]
    assert found["seconds to\n42 %"] == ["4.0 (1 of 3)", "4.0", "2.0"]
    assert texts(further_tables(groups_of(folder), 99.0, "last")[0])["rounds to\n99 %"] == ["never"] * 3


def test_a_table_has_loss_and_measures_and_says_how_many_rounds_are_the_last(folder):
    found = texts(comparison_table(groups_of(folder)))
    assert found["loss"] == ["1.000", "1.000", "1.000"]
    assert found["second\nhalf"][2] == "50.00"
    assert "last 2" in found
    assert "last 10" not in found


def test_differences_are_those_of_pairs(folder):
    found = texts(paired_table(groups_of(folder), "last"))
    assert str(paired_table(groups_of(folder), "last10").title) == "last 2: difference to fedavg"
    assert found["run"] == ["fedprox"], "fedrs has no seed in common with fedavg"
    assert found["seeds"] == ["3"]
    assert found["difference"] == ["+4.00"]  # 2, 4 and 6
    assert found["95% interval"] == ["-0.97 to +8.97"]
    assert found["p"] == ["0.074"]
    swapped = texts(paired_table(groups_of(folder), "last", against="fedprox"))
    assert (swapped["run"], swapped["difference"]) == (["fedavg"], ["-4.00"])
    assert paired_table(groups_of(folder)[2:], "last") is None
    with pytest.raises(UserError, match="names none of these"):
        paired_table(groups_of(folder), "last", against="moon")


def test_for_scripts(folder):
    averaged, prox, _ = json.loads(json.dumps(comparison_json(groups_of(folder), 42.0, "last")))
    assert averaged["runs"][0]["to"] == {"percent": 42.0, "rounds": None, "bytes": None, "seconds": None}
    assert prox["runs"][0]["to"] == {"percent": 42.0, "rounds": 2, "bytes": 3_000_000, "seconds": 4.0}
    assert prox["paired"]["difference"] == 4.0
    assert "paired" not in averaged


def asked(*words):
    return CliRunner().invoke(cli.app, ["compare", *map(str, words)])


def test_a_folder_and_labels(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = asked(folder, "--json")
    assert [group["label"] for group in json.loads(done.output)] == ["fedavg", "fedprox", "fedrs"]
    done = asked(f"plain={folder / 'avg0'}", f"with a pull={folder / 'prox0'}", "--json")
    assert [group["label"] for group in json.loads(done.output)] == ["plain", "with a pull"]
    done = asked(f"old={folder}", folder / "rs", "--json")
    assert [group["label"] for group in json.loads(done.output)] == ["old, fedavg", "old, fedprox", "old, fedrs"]
    (tmp_path / "a=b").mkdir()
    a_run(tmp_path / "a=b" / "r", [50.0])
    assert json.loads(asked("a=b", "--json").output)[0]["label"] == "rebafl", "a path may have an equals sign"
    (tmp_path / "empty").mkdir()
    assert "no run is below it" in str(asked("empty").exception)


def test_in_a_narrow_window_nothing_is_cut(folder, monkeypatch):
    tables = [comparison_table(groups_of(folder)), *further_tables(groups_of(folder), 42.0, "last")]
    assert len(tables) == 3
    for table, width in product(tables, (40, 60, 70, 80, 100, 120, 200)):
        held = io.StringIO()
        console = PlainConsole(file=held, force_terminal=True, width=width, color_system=None)
        monkeypatch.setattr(terminal, "out", console)
        terminal.show(table)
        text = held.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        for column in texts(table).values():
            for cell in column:
                assert cell in text, (cell, width)
