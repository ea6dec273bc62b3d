"""A run says which client holds what, or that this is withheld; nothing depends on it."""

import json

import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.runs.experiment import prepare
from rebafl.runs.holdings import HOLDINGS, MOST, Holdings, of_run, read_holdings
from rebafl.runs.settings import make_settings
from support.toy import TOY_SETTINGS, TinyNet, lines, quiet, run_toy


def toy_experiment(toy, **changes):
    return prepare(make_settings({**TOY_SETTINGS, "dataset": "toy", **changes}), toy, TinyNet, quiet)


def test_a_simulation_writes_down_the_split(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    held = read_holdings(tmp_path / "r")
    split = toy_experiment(toy).work.split
    assert held.source == "split"
    assert held.clients == 6
    assert list(held.classes) == list(toy.classes)
    assert held.counts == {client: split.counts(client).tolist() for client in range(6)}
    assert all(sum(row) == 20 for row in held.counts.values())


def test_what_uploads_do_not_tell_the_record_does_not_tell(tmp_path, toy):
    run_toy(tmp_path / "r", toy, protect={"counts": "withheld"})
    assert json.loads((tmp_path / "r" / HOLDINGS).read_text())["counts"] == {}
    assert read_holdings(tmp_path / "r").source == "withheld"
    for protect in ({"noise": 1.0, "clip": 1.0}, {"secagg": True}):
        assert of_run(toy_experiment(toy, protect=protect), True).source == "withheld"


def test_rounded_counts_are_recorded_as_uploads_show_them(toy):
    plain, rounded = of_run(toy_experiment(toy), True), of_run(toy_experiment(toy, protect={"counts": "rounded"}), True)
    assert plain.counts[0] != rounded.counts[0]
    assert all(n & (n - 1) == 0 for row in rounded.counts.values() for n in row), "powers of two"


def test_a_server_that_does_not_know_the_split_learns_from_uploads(toy):
    held = of_run(toy_experiment(toy), knows_split=False)
    assert (held.source, held.counts) == ("uploads", {})
    upload = Upload(3, {}, torch.tensor([5, 0, 0, 2]), {})
    assert held.learn([upload])
    assert held.counts == {3: [5, 0, 0, 2]}
    assert not held.learn([upload]), "it is no news any more"


def test_of_very_many_clients_nobody_is_counted(toy):
    partition = {"kind": "pathological", "clients": MOST + 1, "classes": 2, "samples": 4}
    assert of_run(toy_experiment(toy, partition=partition), True).source == "not counted"


def test_a_damaged_file_is_no_file_and_is_written_again(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    good = (tmp_path / "r" / HOLDINGS).read_bytes()
    for bad in (b"", b"[]", b"{}", good.replace(b"10", b"11"), good[:50]):
        (tmp_path / "r" / HOLDINGS).write_bytes(bad)
        assert read_holdings(tmp_path / "r") is None
    run_toy(tmp_path / "r", toy, rounds=4)
    assert (tmp_path / "r" / HOLDINGS).read_bytes() == good


def test_a_run_without_the_file_is_read_and_resumed(tmp_path, toy):
    whole = run_toy(tmp_path / "whole", toy, rounds=4)
    run_toy(tmp_path / "r", toy)
    (tmp_path / "r" / HOLDINGS).unlink()
    assert read_holdings(tmp_path / "r") is None
    run_toy(tmp_path / "r", toy, rounds=4)
    assert lines(tmp_path / "r") == lines(whole.path)
    assert read_holdings(tmp_path / "r").counts == read_holdings(whole.path).counts


def test_it_comes_back_as_it_was_written(tmp_path):
    held = Holdings(["a", "b\u2028</script>"], 2, "uploads", {1: [0, 7]})
    held.write(tmp_path)
    assert read_holdings(tmp_path) == held
