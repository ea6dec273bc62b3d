"""A run directory and an exported model of version 0.1 are as good as new: resumed, compared, exported, asked."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from golden.make import (
    EXPECTED,
    EXPORTED,
    OLD_NAMES,
    OLD_RUNS,
    check,
    command,
    compared,
    digests,
    file_digests,
    other_bits,
    probabilities,
    resumed,
    tensors_digest,
)

RECORDED = json.loads(EXPECTED.read_text())


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the old runs as the working directory: their settings name the data by a relative path."""
    monkeypatch.chdir(shutil.copytree(OLD_RUNS, tmp_path / "old"))


def known(found, recorded):
    """What is found, without entries that version 0.1 did not have."""
    if isinstance(recorded, dict):
        return {name: known(found[name], value) for name, value in recorded.items()}
    if isinstance(recorded, list):
        return [known(*pair) for pair in zip(found, recorded, strict=True)]
    return found


def test_the_files_are_as_version_0_1_wrote_them():
    assert file_digests(OLD_RUNS, EXPORTED) == RECORDED["files"]


def test_old_runs_resume_to_the_same_bits(old):
    found = resumed(accept_changes=bool(other_bits(RECORDED["torch"])))
    for name in OLD_NAMES:
        assert found[name]["accuracy"][:2] == RECORDED["resumed"][name]["accuracy"][:2]
    for name in OLD_NAMES:
        check(found[name], RECORDED["resumed"][name], RECORDED["torch"])
    summary = compared()
    assert known(summary, RECORDED["compared when resumed"]) == RECORDED["compared when resumed"]


def test_an_old_run_can_be_rolled_back_and_resumed(old):
    command("rollback", "rebafl", "--to", "1")
    assert len(digests(Path("rebafl"))["accuracy"]) == 1
    found = resumed(accept_changes=bool(other_bits(RECORDED["torch"])))
    check(found["rebafl"], RECORDED["resumed"]["rebafl"], RECORDED["torch"])


def test_old_runs_are_compared(old):
    assert known(compared(), RECORDED["compared"]) == RECORDED["compared"]


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_runs_are_asked(old, name):
    assert probabilities(name) == pytest.approx(RECORDED["probabilities"][name], abs=1e-6)


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_runs_are_exported(old, name):
    command("export", name, "--to", "exported")
    assert tensors_digest(Path("exported/model.safetensors")) == tensors_digest(EXPORTED / name / "model.safetensors")
    before = json.loads((EXPORTED / name / "model.json").read_text())
    after = json.loads(Path("exported/model.json").read_text())
    assert all(known(after[part], before[part]) == before[part] for part in ("model", "inputs"))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_exported_model_is_asked(old, name):
    exported = shutil.copytree(EXPORTED / name, "exported")
    assert probabilities(exported) == pytest.approx(RECORDED["probabilities"][name], abs=1e-6)


@pytest.mark.slow
def test_the_loader_beside_an_old_exported_model_still_runs(tmp_path):
    """It names modules as version 0.1 had them."""
    exported = shutil.copytree(EXPORTED / "scaffold", tmp_path / "exported")
    done = subprocess.run(
        [sys.executable, exported / "load_model.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "('upper left', 'upper right', 'lower left', 'lower right')\n"
