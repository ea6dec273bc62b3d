"""All runs under a folder, without reading a line twice; a damaged one is named and the others are shown."""

import json

import pytest

from rebafl import UserError
from rebafl.base.files import locked
from rebafl.runs.holdings import Holdings
from rebafl.runs.stopping import honours_stop, request_stop
from rebafl.ui.folder import Folder, find_runs
from rebafl.ui.run_view import RunView, read_view, seconds_left
from rebafl.ui.scan import CURVES, Scan
from support.toy import round_line, run_toy
from support.views import CLASSES, drawn_lines, write_lines, written_run


def test_runs_are_found_below_folders_but_not_within_runs(tmp_path, toy):
    run_toy(tmp_path / "s" / "a", toy, rounds=1)
    run_toy(tmp_path / "b", toy, rounds=1)
    run_toy(tmp_path / "b" / "verify" / "inner", toy, rounds=1)
    (tmp_path / "empty").mkdir()
    assert find_runs([tmp_path]) == {"b": tmp_path / "b", "s/a": tmp_path / "s" / "a"}
    assert find_runs([tmp_path / "b"]) == {"b": tmp_path / "b"}
    both = find_runs([tmp_path / "b", tmp_path])
    assert sorted(both) == ["b", "s/a"]


def test_the_table_shows_what_differs(tmp_path, toy):
    run_toy(tmp_path / "a", toy, algorithm={"kind": "rebafl", "mu": 0.1}, rounds=2)
    run_toy(tmp_path / "b", toy, algorithm={"kind": "rebafl", "mu": 0.2}, rounds=2, seed=1)
    run_toy(tmp_path / "c", toy, algorithm="fedavg", rounds=3)
    table = Folder([tmp_path]).table()
    assert table["apart"] == ["algorithm.kind", "algorithm.mu", "seed"]
    rows = {row["name"]: row for row in table["runs"]}
    assert rows["b"]["settings"] == {"algorithm.kind": "rebafl", "algorithm.mu": 0.2, "seed": 1}
    assert (rows["c"]["state"], rows["c"]["done"], rows["c"]["rounds"]) == ("finished", 3, 3)
    assert rows["a"]["best"] == max(line.accuracy for line in read_view(tmp_path / "a").lines)


def test_seeds_of_one_setting_are_one_group(tmp_path, toy):
    run_toy(tmp_path / "a", toy, rounds=1)
    run_toy(tmp_path / "b", toy, rounds=2, seed=1)
    run_toy(tmp_path / "c", toy, rounds=1, algorithm="fedavg")
    groups = {row["name"]: row["group"] for row in Folder([tmp_path]).table()["runs"]}
    assert groups["a"] == groups["b"] != groups["c"]


def test_curves_are_those_of_the_record_and_grow(tmp_path):
    lines = drawn_lines(5, 20)
    lines[4] = round_line(round=5, loss=None, refused={1: 'x "accuracy": 99.9, "seconds": 7 '}, accuracy=12.5)
    record = written_run(tmp_path / "r", lines[:12], 5)
    scan = Scan(record.path)
    assert scan.look() == 0
    write_lines(record, lines)
    assert scan.look() == 12
    for name in CURVES:
        expected = [getattr(line, name) for line in lines]
        found = [None if value != value else value for value in scan.curves[name]]
        assert found == expected, name


def test_only_new_rounds_are_sent(tmp_path):
    record = written_run(tmp_path / "r", drawn_lines(5, 8), 5)
    folder = Folder([tmp_path])
    (whole,) = folder.curves(["r"], [0])
    assert (whole["from"], len(whole["accuracy"])) == (0, 8)
    (rest,) = folder.curves(["r"], [6])
    assert rest["accuracy"] == whole["accuracy"][6:]
    write_lines(record, drawn_lines(5, 3))
    (again,) = folder.curves(["r"], [8])
    assert (again["from"], len(again["accuracy"])) == (0, 3), "the run was rolled back"


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path):
    written_run(tmp_path / "good", drawn_lines(4, 3), 4)
    written_run(tmp_path / "bad", drawn_lines(4, 3), 4)
    (tmp_path / "bad" / "rounds.jsonl").write_text("{}\n")
    rows = {row["name"]: row for row in Folder([tmp_path]).table()["runs"]}
    assert rows["good"]["done"] == 3
    assert rows["bad"]["state"] == "damaged"
    assert "rounds.jsonl" in rows["bad"]["problem"]


def test_a_name_that_is_no_run_leads_nowhere(tmp_path):
    written_run(tmp_path / "runs" / "r", drawn_lines(4, 3), 4)
    written_run(tmp_path / "secret", drawn_lines(4, 3), 4)
    folder = Folder([tmp_path / "runs"])
    for name in ("../secret", str(tmp_path / "secret"), "", "r/../../secret"):
        with pytest.raises(UserError, match="There is no run"):
            folder.path(name)


def test_the_state_of_a_run(tmp_path):
    record = written_run(tmp_path / "r", drawn_lines(4, 3), 4, rounds=9)
    view = RunView(record.path)
    view.look()
    assert view.facts()["state"] == "interrupted"
    with locked(record.path):
        assert view.facts()["state"] == "running"
        assert view.facts()["left"] == pytest.approx(6 * 1.5)
        request_stop(record.path)
        assert view.facts()["state"] == "stopping"
        honours_stop(record.path, 3)
    assert view.facts()["state"] == "stopped"
    (record.path / "stop.json").unlink()
    (record.path / "failure.txt").write_text("no nodes\n")
    assert (view.facts()["state"], view.facts()["problem"]) == ("failed", "no nodes")
    assert seconds_left("finished", [1.0], 1) is None


def test_a_view_is_json_and_holds_what_the_record_holds(tmp_path):
    lines = drawn_lines(12, 30)
    written_run(tmp_path / "r", lines, 12, federation=True, participation={"kind": "bernoulli", "p": [0.5, 0.2, 0.1]})
    view = read_view(tmp_path / "r")
    facts, rounds, details = json.loads(json.dumps([view.facts(), view.rounds_from(0), view.details()]))
    assert (facts["kind"], facts["groups"], facts["clients"]) == ("federation", 3, 12)
    assert rounds["recall"] == [list(line.recall) for line in lines]
    said = {(r, c): (kind, rounds["reasons"][i]) for r, c, kind, i in rounds["troubles"]}
    expected = {(line.round, c): ("missing", why) for line in lines for c, why in line.missing.items()}
    expected |= {(line.round, c): ("refused", why) for line in lines for c, why in line.refused.items()}
    assert said == expected
    assert rounds["all_troubles"] == len(expected) > 20
    assert [round for round, *_ in rounds["troubles"]] == sorted(round for round, *_ in rounds["troubles"])
    assert len(details["holdings"]["counts"]) == 12
    assert view.rounds_from(28)["accuracy"] == [line.accuracy for line in lines[28:]]


def test_of_very_many_troubles_the_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("rebafl.ui.run_view.MOST_TROUBLES", 4)
    lines = [round_line(round=n, active=[0, 1, 2], refused={0: "a", 1: "b", 2: "c"}) for n in (1, 2, 3)]
    written_run(tmp_path / "r", lines, 3)
    rounds = read_view(tmp_path / "r").rounds_from(0)
    assert [trouble[:2] for trouble in rounds["troubles"]] == [[2, 2], [3, 0], [3, 1], [3, 2]]
    assert rounds["all_troubles"] == 9


def test_runs_of_earlier_versions_are_shown_without_what_they_did_not_write(tmp_path):
    written_run(tmp_path / "r", drawn_lines(4, 3), 4)
    (tmp_path / "r" / "holdings.json").unlink()
    view = read_view(tmp_path / "r")
    assert view.rounds_from(0)["presence"] is None
    assert view.details()["holdings"]["source"] == "not recorded"
    assert view.classes() == [str(n) for n in range(10)]
    assert view.prototypes() is None


def test_prototypes_are_shown_in_two_dimensions(tmp_path, toy):
    run_toy(tmp_path / "r", toy, keep_prototypes=True, rounds=4)
    shown = read_view(tmp_path / "r").prototypes()
    assert shown["rounds"] == [1, 2, 3, 4]
    assert all(len(place) == 4 for place in shown["places"])
    assert any(place is not None for place in shown["places"][-1])


def test_what_holds_no_finished_round_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run that has begun"):
        read_view(tmp_path)
    written_run(tmp_path / "r", [], 4)
    with pytest.raises(UserError, match="has no finished round yet"):
        read_view(tmp_path / "r")


def test_a_map_that_would_fill_the_memory_is_refused(tmp_path):
    written_run(tmp_path / "r", drawn_lines(4, 40), 9_000_000, holdings=Holdings(CLASSES, 9_000_000, "not counted"))
    with pytest.raises(UserError, match="9000000 clients and 40 rounds, too many to be shown"):
        read_view(tmp_path / "r")
