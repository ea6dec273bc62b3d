"""Prototypes of every round are kept on request, and whether they are changes no bit."""

import torch

from rebafl.runs.prototypes import FOLDER, read_prototypes
from rebafl.runs.settings import make_settings
from support.toy import lines, run_toy, same_bits, weights


def test_each_round_keeps_the_servers(tmp_path, toy):
    plain = run_toy(tmp_path / "plain", toy)
    kept = run_toy(tmp_path / "kept", toy, keep_prototypes=True)
    assert lines(kept.path) == lines(plain.path)
    assert same_bits(weights(kept), weights(plain))
    tables = read_prototypes(kept.path, 3)
    assert sorted(tables) == [1, 2, 3]
    assert torch.equal(tables[3], kept.server()["state"]["prototypes"])
    assert not torch.equal(tables[2], tables[3])
    assert read_prototypes(plain.path, 3) == {}


def test_algorithms_without_prototypes_keep_none(tmp_path, toy):
    run_toy(tmp_path / "r", toy, algorithm="fedavg", keep_prototypes=True)
    assert not (tmp_path / "r" / FOLDER).exists()


def test_a_damaged_file_is_left_out_and_later_ones_do_not_count(tmp_path, toy):
    run_toy(tmp_path / "r", toy, keep_prototypes=True)
    (tmp_path / "r" / FOLDER / "1.safetensors").write_bytes(b"half")
    assert sorted(read_prototypes(tmp_path / "r", 2)) == [2]


def test_it_is_no_part_of_a_results_name_and_may_change_on_resuming(tmp_path, toy):
    assert make_settings({"keep_prototypes": True}).digest == make_settings({}).digest
    run_toy(tmp_path / "r", toy, rounds=1)
    run_toy(tmp_path / "r", toy, rounds=2, keep_prototypes=True)
    assert sorted(read_prototypes(tmp_path / "r", 2)) == [2]
