"""A report holds what the record holds, in at most two megabytes, whatever the run."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from rebafl import UserError, cli
from rebafl.ui.cells import cells_of
from rebafl.ui.report_file import MOST_BYTES, report
from support.views import drawn_lines, written_run


def block(text, name):
    found = re.search(rf'<script type="text/plain" id="{name}">([A-Za-z0-9+/=]*)</script>', text)
    return gzip.decompress(base64.b64decode(found[1]))


def payload(text):
    return json.loads(block(text, "payload"))


def test_every_cell_of_a_small_run_is_in_it(tmp_path):
    lines = drawn_lines(12, 40)
    written_run(tmp_path / "r", lines, 12, rounds=40)
    text = report([tmp_path / "r"])
    (run,) = payload(text)["runs"]
    assert run["map"] == {"kind": "cells"}
    assert block(text, "cells-0") == cells_of(lines, 12, run["facts"]["idle"]).tobytes()
    assert run["rounds"]["accuracy"] == [line.accuracy for line in lines]
    assert run["notes"] == []
    assert run["details"]["settings"]["rounds"] == 40
    assert run["details"]["environment"]["rebafl"] == "0.1.0"
    assert "config.toml out=NEW-DIRECTORY" in run["details"]["command"]


def test_a_huge_run_is_binned_and_says_so(tmp_path):
    lines = drawn_lines(10_000, 1_000)
    written_run(tmp_path / "r", lines, 10_000, rounds=1_000)
    text = report([tmp_path / "r"])
    assert len(text.encode()) <= MOST_BYTES
    (run,) = payload(text)["runs"]
    assert run["map"]["kind"] == "bins"
    assert any("bins of 10000 clients × 1000 rounds" in note for note in run["notes"])
    size = run["map"]["rows"] * run["map"]["columns"]
    share = np.frombuffer(block(text, "cells-0"), dtype=np.uint8)[:size]
    answered = np.mean([len(line.answered) - len(line.refused) for line in lines]) / 10_000
    assert abs(share.mean() / 255 - answered) < 0.01


def test_many_runs_fit_too(tmp_path):
    lines = drawn_lines(20, 300)
    for number in range(60):
        written_run(tmp_path / f"r{number}", lines, 20, rounds=300, seed=number)
    text = report([tmp_path / f"r{number}" for number in range(60)])
    assert len(text.encode()) <= MOST_BYTES
    runs = payload(text)["runs"]
    assert len(runs) == 60
    assert len({run["group"] for run in runs}) == 1, "they differ in their seed only"


def test_a_run_named_twice_is_shown_once(tmp_path):
    written_run(tmp_path / "r", drawn_lines(4, 5), 4)
    assert len(payload(report([tmp_path / "r", tmp_path / "r" / ".." / "r"]))["runs"]) == 1


def test_a_federations_run_is_called_by_its_federation(tmp_path):
    written_run(tmp_path / "fed" / "run", drawn_lines(4, 5), 4, federation=True)
    text = report([tmp_path / "fed" / "run"])
    assert payload(text)["title"] == "rebafl: fed/run"
    assert payload(text)["runs"][0]["facts"]["name"] == "fed/run"
    assert payload(text)["runs"][0]["facts"]["summary"]["last_ten_name"] == "last 5"


def test_hostile_names_stay_text(tmp_path):
    name = "<img src=x onerror=alert(1)>&\"'"
    written_run(tmp_path / name, drawn_lines(4, 5), 4, classes=["</script><b>", *"abcdefghi"])
    text = report([tmp_path / name])
    assert "<img" not in text
    assert payload(text)["runs"][0]["facts"]["name"] == name


def test_the_command_writes_a_file(tmp_path):
    written_run(tmp_path / "r", drawn_lines(4, 5), 4)
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path / "r"), "-o", str(tmp_path / "new" / "report.html")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(UserError, match="holds no run"):
        report([tmp_path / "nothing"])
