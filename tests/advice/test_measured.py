"""Result files, brought down to what advice needs."""

import json

import pytest

from rebafl.advice.measured import SHIPPED, Cell, as_json, collect, name_of, shipped
from rebafl.algorithms import KINDS
from rebafl.base.config import plain
from rebafl.base.errors import UserError
from support.advice import keep
from support.paths import DOCS, RESULTS

BENCH = DOCS / "measured" / "methods.json"
FLAT = [60.0] * 20
WORDS = "dataset=fashion-mini rounds=20"


def names(folder):
    return [(c.scale, str(c.setting), [e.name for e in c.entries]) for c in collect(folder, folder / "none").conditions]


def test_what_is_shipped_is_what_the_result_files_give():
    assert SHIPPED.read_text() == as_json(collect(RESULTS, BENCH)), "run tools/make_docs.py"
    assert len(SHIPPED.read_bytes()) < 100_000


def test_what_is_shipped_is_read_back_whole():
    assert shipped() == collect(RESULTS, BENCH)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"seconds": {}, "conditions": [{"scale": "paper"}]}'])
def test_a_damaged_file_is_one_sentence(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(UserError, match=r"install the package again\.$"):
        shipped(tmp_path / "m.json")


def test_the_numbers_of_a_run(tmp_path):
    path = keep(tmp_path, "quick", f"{WORDS} algorithm=feddyn seed=3", [0.0] * 10 + [50.0, 54.0] * 5, cloud=[40.0] * 20)
    (condition,) = collect(tmp_path, BENCH).conditions
    (entry,) = condition.entries
    assert entry.cells == {3: Cell(path.stem, accuracy=52.0, swing=4.0, last=52.0, cloud=40.0)}


def test_a_run_that_falls_at_its_end_is_seen(tmp_path):
    keep(tmp_path, "beyond/report", WORDS, [50.0] * 30 + [40.0] * 10)
    (entry,) = collect(tmp_path, BENCH).conditions[0].entries
    assert (entry.cells[0].accuracy, entry.cells[0].last) == (45.0, 40.0)
    assert (entry.up, entry.down) == (1000, 500)


def test_only_runs_that_differ_in_nothing_else_are_compared(tmp_path):
    for words in ("", "training.momentum=0.9", "partition.clients=50", "partition.samples=50", "training.batch=20"):
        for method in ("fedavg", "rebafl"):
            keep(tmp_path, "quick", f"{WORDS} {words} algorithm={method}", FLAT)
            keep(tmp_path, "quick", f"{WORDS} {words} algorithm={method} seed=1", FLAT)
    conditions = collect(tmp_path, BENCH).conditions
    assert len(conditions) == 5
    assert all({*e.cells} == {0, 1} for c in conditions for e in c.entries)
    assert all([e.name for e in c.entries] == ["fedavg", "rebafl"] for c in conditions)


def test_scales_are_never_mixed(tmp_path):
    long = [60.0] * 200
    for scale in ("paper", "beyond/report", "quick"):
        keep(tmp_path, scale, "algorithm=fedavg rounds=200", long)
    assert [scale for scale, _, _ in names(tmp_path)] == ["paper", "beyond/report", "quick"]


def test_tuning_and_unfinished_runs_do_not_count(tmp_path):
    keep(tmp_path, "beyond/tuning", "algorithm=fedavg rounds=40", [60.0] * 40)
    keep(tmp_path, "paper", "algorithm=fedavg rounds=199", [60.0] * 199)
    assert names(tmp_path) == []


def test_of_longer_runs_as_many_rounds_count_as_the_scale_has(tmp_path):
    keep(tmp_path, "quick", f"{WORDS} algorithm=fedavg", FLAT + [90.0] * 20)
    (condition,) = collect(tmp_path, BENCH).conditions
    assert condition.entries[0].cells[0].accuracy == 60.0


def test_settings_count_that_are_defaults_or_were_chosen_on_held_out_images(tmp_path):
    for mu in (0.1, 1, 5):
        keep(tmp_path, "quick", f"{WORDS} algorithm=rebafl algorithm.mu={mu}", FLAT)
    assert names(tmp_path)[0][2] == ["rebafl"]
    for mu in (1, 5):
        keep(tmp_path, "beyond/tuning", f"rounds=40 algorithm=rebafl algorithm.mu={mu}", [60.0] * 40)
    assert names(tmp_path)[0][2] == ["rebafl"], "that one was tried does not mean that it was chosen"
    for words in ("algorithm=rebafl algorithm.mu=5", "algorithm=fedtrack algorithm.smooth=false"):
        keep(tmp_path, "beyond/report", f"rounds=40 {words}", [60.0] * 40)
    assert [found for _, _, found in names(tmp_path)] == [["rebafl[mu=5.0]"], ["rebafl", "rebafl[mu=5.0]"]]


def test_own_code_is_passed_over(tmp_path):
    """It is not there for others, and what it would be called is nobody's name."""
    keep(tmp_path, "quick", f"{WORDS} algorithm=fedavg", FLAT, own="my_code:Mine")
    assert names(tmp_path) == []


def test_both_readings_of_dropout_are_one_condition(tmp_path):
    keep(tmp_path, "quick", f"{WORDS} algorithm=fedavg", FLAT)
    keep(tmp_path, "quick", f"{WORDS} algorithm=fedavg dropout=lost", FLAT)
    assert len(names(tmp_path)) == 1


def test_partitions_and_traces_from_files_are_conditions_of_their_own(tmp_path):
    """The files themselves are not looked at: they may not be there."""
    keep(
        tmp_path, "quick", f"{WORDS} algorithm=fedavg partition=file partition.path=no.json partition.clients=20", FLAT
    )
    keep(tmp_path, "quick", f"{WORDS} algorithm=fedavg participation=trace participation.path=no.csv", FLAT)
    found = [condition.setting for condition in collect(tmp_path, BENCH).conditions]
    assert sorted((setting.classes, setting.share) for setting in found if setting.share is None) == [(2.0, None)]
    assert [setting.share for setting in found if setting.classes is None] == [0.5]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_name_of_a_method_with_defaults_is_its_kind(kind):
    assert name_of(plain(KINDS[kind]())) == kind


def test_seconds_are_those_of_rounds_in_turn(tmp_path):
    bench = tmp_path / "methods.json"
    bench.write_text(json.dumps({"to_fedavg": {"rebafl": {"ratio": 1.204, "spread": [1.1, 1.3]}}, "other": 1}))
    assert collect(tmp_path, bench).seconds == {"rebafl": (1.2, 1.1, 1.3)}
    assert collect(tmp_path, tmp_path / "none").seconds == {}
