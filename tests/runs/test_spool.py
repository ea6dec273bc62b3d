"""Uploads that wait on the disk give the same bits as those in memory, and what a round holds does not grow."""

import os
import tempfile
from typing import Any

import pytest
import torch

from rebafl.algorithms import KINDS
from rebafl.algorithms.aggregate import Upload, weighted_mean
from rebafl.base.errors import UserError
from rebafl.bench import scale
from rebafl.runs import spool
from support.toy import lines, run_toy, same_bits, weights


def upload_of(client, seed):
    random = torch.Generator().manual_seed(seed)
    change = {
        "conv": torch.randn(4, 3, 5, 5, generator=random).contiguous(memory_format=torch.channels_last),
        "bias": torch.randn(7, generator=random, dtype=torch.float64),
        "steps": torch.tensor(seed),
        "none": torch.zeros(0),
        "flags": torch.tensor([True, False]),
    }
    return Upload(client, change, torch.tensor([1, 2]), {"p": torch.randn(2, 3, generator=random)})


def test_a_spooled_upload_is_the_upload(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "IN_MEMORY", 0)
    uploads = [upload_of(client, client) for client in range(3)]
    with spool.Spool(tmp_path) as kept:
        stored = [kept.keep(upload) for upload in uploads]
        for before, after in zip(uploads, stored, strict=True):
            assert type(after.change) is not dict, "it is on the disk"
            assert same_bits(dict(after.change), dict(before.change))
            assert same_bits(dict(after.shared), dict(before.shared))
            assert (after.client, after.samples, after.bytes) == (before.client, before.samples, before.bytes)
        names = [{n: u.change[n] for n in ("conv", "bias")} for u in uploads]
        assert same_bits(
            weighted_mean(names, [1, 2, 3]),
            {n: t for n, t in weighted_mean([u.change for u in stored], [1, 2, 3]).items() if n in ("conv", "bias")},
        )
        assert os.listdir(tmp_path) == [], "the file has no name, so that nothing is left of it after a kill"


def test_few_uploads_stay_in_memory(tmp_path):
    upload = upload_of(0, 0)
    with spool.Spool(tmp_path) as kept:
        assert kept.keep(upload) is upload


@pytest.mark.parametrize("algorithm", sorted(set(KINDS) - {"fedavg-ft"}))
def test_every_algorithm_gives_the_same_bits_from_the_disk(tmp_path, toy, monkeypatch, algorithm):
    held = run_toy(tmp_path / "held", toy, algorithm=algorithm)
    monkeypatch.setattr(spool, "IN_MEMORY", 0)
    stored = run_toy(tmp_path / "stored", toy, algorithm=algorithm)
    assert lines(stored.path) == lines(held.path)
    assert same_bits(weights(stored), weights(held))


def test_a_full_disk_is_one_sentence(tmp_path, toy, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool, "IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match="No space left on device"):
        run_toy(tmp_path / "r", toy)


@pytest.mark.slow
def test_memory_does_not_grow_with_active_clients(tmp_path):
    """The main process, with a model of 4 MB: 40 clients more would be 320 MB if their uploads were held."""
    small: dict[str, Any] = {"width": 1_280, "samples": 10, "rounds": 2, "algorithm": "scaffold"}
    few, many = (scale.point(tmp_path, active, active, **small).parent for active in (20, 60))
    assert few > 100e6, "it was measured at all"
    assert many - few < 60e6
