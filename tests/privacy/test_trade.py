"""What protections cost and gain: directions, on clouds and on real pictures; the command and its table."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from rebafl import UserError, cli, simulate
from rebafl.base.config import parse_assignments
from rebafl.privacy import trade as trading
from rebafl.privacy.curves import Plan
from rebafl.privacy.trade import ROWS, cells, trade
from rebafl.privacy.trade_page import HEADER, table_of, trade_page
from rebafl.runs.settings import make_settings
from support.clouds import SETTINGS
from support.toy import quiet

PLAN = Plan(ks=(10, 50))
NOISY = ("protect.clip=8", "protect.noise=5", "protect.min_count=10")
ANNOUNCED = ("protect.min_holders=5", "protect.holders=announced")
KEPT = ("protect.min_count=51",)
SUMMED = ("protect.secagg=true",)
CENTRAL = ("protect.update_clip=0.1", "protect.central_noise=1", "protect.counts=withheld")
SOME = ((), ("algorithm.mu=0",), KEPT, ANNOUNCED, NOISY, CENTRAL, SUMMED)


@pytest.fixture(scope="module")
def traded(clouds, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trade")
    made = cells({**SETTINGS, "dataset": "clouds"}, ["rounds=4"], SOME, [0, 1], folder)
    result = trade(made, PLAN, clouds, say=quiet)
    return folder, made, result, {tuple(row["words"]): row for row in result["rows"]}


def auc(row, name):
    return row["attacks"][f"{name} AUC"]


def test_what_each_protection_gains(traded):
    rows = traded[3]
    plain, upload = rows[()], "server each client's upload"
    assert auc(plain, upload)["low"] > 0.55
    assert auc(rows[NOISY], upload)["value"] < auc(plain, upload)["value"] - 0.05
    assert auc(rows[SUMMED], "server sum of the uploads")["value"] < auc(plain, upload)["value"] - 0.05
    for nothing in (KEPT, ("algorithm.mu=0",)):
        assert f"{upload} AUC" not in rows[nothing]["attacks"], "what is not sent is not traced"
        assert rows[nothing]["single_to_server"] == 0
    assert rows[ANNOUNCED]["single_to_server"] < plain["single_to_server"]
    assert rows[ANNOUNCED]["handed_to_clients"] <= plain["handed_to_clients"]
    assert plain["attacks"]["held classes"]["value"] == 1
    assert "held classes" not in rows[SUMMED]["attacks"]
    assert "linked by both" not in rows[SUMMED]["attacks"]
    assert plain["attacks"]["linked by both"]["value"] > 2 * plain["chance_of_linking"]


def test_clients_of_all_seeds_are_the_units_and_controls_hold(traded):
    _, made, _, rows = traded
    for row in rows.values():
        for name, found in row["attacks"].items():
            assert len(found["values"]) == found["units"]
            if name.endswith("fakes"):
                assert abs(found["value"] - 0.5) < 0.03
    by_seed = [json.loads(cell.result.read_text())["clients"] for cell in made if not cell.row]
    name = "server each client's upload AUC"
    assert rows[()]["attacks"][name]["values"] == (*by_seed[0][name], *by_seed[1][name])
    assert rows[NOISY]["epsilon"] > 0
    assert rows[()]["epsilon"] is None


def test_what_is_there_is_not_made_again(traded, clouds, monkeypatch):
    _, made, result, _ = traded

    def never(*_):
        raise AssertionError("attacked again")

    monkeypatch.setattr(trading, "_attacked", never)
    done = []
    again = trade(made, PLAN, clouds, say=quiet, tick=lambda done_, of, text: done.append((done_, of)))
    assert again["rows"] == result["rows"]
    with pytest.raises(AssertionError, match="attacked again"):
        trade(made, replace(PLAN, seed=1), clouds, say=quiet)


def test_the_table_needs_nothing_else(traded):
    result = traded[2]
    table = table_of(result)
    assert len(table) == len(SOME)
    assert all(len(row) == len(HEADER) for row in table)
    text = trade_page(result, ["rounds=4"])
    assert "http" not in text
    assert all(" ".join(words) in text for words in SOME)


def test_every_usual_row_is_possible():
    for row in ROWS:
        assert make_settings(parse_assignments([*trading.BASE, *row])).dataset == "fashion-mnist"


def test_the_command_on_a_few_rows(tmp_path, clouds):
    np.savez(tmp_path / "c.npz", **{n: getattr(clouds, n).numpy() for n in ("x_train", "y_train", "x_test", "y_test")})
    words = [f"dataset={tmp_path / 'c.npz'}", "model=mlp", "partition=pathological", "partition.clients=6",
             "partition.samples=40", "workers=1"]  # fmt: skip
    command = ["privacy", "protections", *words, "--quick", "--row", "", "--row", "protect.min_holders=2"]
    done = CliRunner().invoke(cli.app, [*command, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.exception
    stored = json.loads((tmp_path / "out" / "protections.json").read_text())
    assert [row["words"] for row in stored["rows"]] == [[], ["protect.min_holders=2"]]
    assert stored["seeds"] == [0]
    assert (tmp_path / "out" / "protections.html").exists()
    assert (tmp_path / "out" / "protections.md").read_text().count("\n") == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "0,0"], "different whole numbers"),
        (["--seeds", "x"], "whole numbers"),
        (["--row", "protect.nothing=1"], "protect.nothing"),
        (["dataset=nowhere.npz"], "nowhere"),
    ],
)
def test_bad_words_are_refused_before_anything_is_run(tmp_path, words, sentence):
    done = CliRunner().invoke(cli.app, ["privacy", "protections", *words, "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)
    assert not (tmp_path / "out").exists()


REAL = {
    "dataset": "fashion-mini", "rounds": 2, "workers": 1, "participation": "always",
    "partition": {"kind": "pathological", "clients": 8, "classes": 2, "samples": 100},
    "training": {"epochs": 2, "batch": 20},
}  # fmt: skip


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The same run on real pictures, as it is and with noise, attacked. 200 public images of a class are known."""
    found = {}
    for name, protect in {"plain": {}, "noisy": {"clip": 8.0, "noise": 10.0}}.items():
        record = simulate({**REAL, "protect": protect}, tmp_path_factory.mktemp("real") / name, say=quiet)
        found[name] = trading._row((), [trading._attacked(record, PLAN, None)], PLAN)
    return found


def test_real_pictures_are_traced(pictures):
    plain = pictures["plain"]
    assert auc(plain, "server k=10")["value"] >= 0.90
    assert auc(plain, "server k=50")["value"] >= 0.70
    assert auc(plain, "server each client's upload")["low"] > 0.65
    fakes = plain["attacks"]["server each client's upload fakes"]
    assert fakes["low"] - 0.01 <= 0.5 <= fakes["high"] + 0.01


def test_noise_ten_leaves_nothing_to_trace_in_real_pictures(pictures):
    found = auc(pictures["noisy"], "server each client's upload")
    assert found["units"] >= 5
    assert found["low"] <= 0.5 <= found["high"]
