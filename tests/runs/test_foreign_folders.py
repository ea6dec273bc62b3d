"""A folder that somebody else made: nothing that it names is imported unless the user says so; damage is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import fuzz_files
from rebafl import cli, export_model, load_model, model_of_run
from rebafl.base.errors import UserError
from rebafl.base.files import sha256
from rebafl.base.sealed import seal, unseal
from rebafl.base.tensors import pack
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record
from support.toy import round_line, run_toy

EVIL = """
from pathlib import Path
Path("hit").touch()
from rebafl import parameters
from rebafl.algorithms.fedavg import FedAvg
from rebafl.models.networks import MLP as Net

@parameters
class Method(FedAvg):
    name = "method"
"""


def command(*words):
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A run whose algorithm and model are own code, and its exported model; `hit` shows that the code ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    x, y = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8), np.arange(40) % 2
    np.savez("d.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    Image.fromarray(x[0]).save("image.png")
    Path("evilcode.py").write_text(EVIL)
    words = ["dataset=d.npz", "partition=iid", "partition.clients=2", "training.epochs=1", "workers=1", "rounds=1"]
    command("run", *words, "model=evilcode:Net", "algorithm=evilcode:Method", "out=run", "-q")
    command("run", *words, "model=mlp", "algorithm=evilcode:Method", "out=method", "-q")
    export_model(model_of_run("run", trust_code=True), "exported")
    sys.modules.pop("evilcode")
    Path("hit").unlink()
    yield
    sys.modules.pop("evilcode", None)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "run", "image.png"), ("predict", "exported", "image.png"), ("export", "run", "--to", "e"),
        ("predict", "method", "image.png"), ("verify", "run"), ("privacy", "audit", "run"),
        ("privacy", "audit", "exported", "--data", "d.npz"),
    ],
)  # fmt: skip
def test_reading_a_folder_runs_no_code_that_it_names(folders, words):
    with pytest.raises(UserError, match=r"names code .*evilcode:(Net|Method)\); .*--trust-code.*\.$"):
        command(*words)
    assert not Path("hit").exists()
    assert "evilcode" not in sys.modules


def test_with_the_users_word_it_is_imported(folders):
    (row,) = json.loads(command("predict", "run", "image.png", "--trust-code", "--json"))
    assert Path("hit").exists()
    assert json.loads(command("predict", "exported", "image.png", "--json", "--trust-code"))[0] == row
    assert "trust_code=True" in Path("exported/load_model.py").read_text()


def test_even_callables_that_are_imported_already_are_not_called(folders, monkeypatch):
    called = []
    monkeypatch.setattr("os.abort", lambda: called.append(1))
    description = unseal(Path("exported/model.json").read_bytes())[0]
    description["model"]["kind"] = "os:abort"
    Path("exported/model.json").write_bytes(seal(json.dumps(description, indent=1)))
    with pytest.raises(UserError, match="os:abort"):
        load_model("exported")
    assert not called


def test_resuming_needs_no_flag(folders):
    command("run", "out=run", "rounds=2", "-q")
    assert Record(Path("run")).rounds()[-1].round == 2


def test_the_loader_of_a_model_without_own_code_trusts_nothing(tmp_path, toy):
    fuzz = fuzz_files.make_sorts(tmp_path)
    (exported,) = {sort.path.parent for sort in fuzz if sort.name == "model.json"}
    assert "trust_code" not in (exported / "load_model.py").read_text()


@pytest.mark.parametrize("name", ["server", "client"])
def test_groups_that_a_checkpoint_must_not_hold(tmp_path, toy, name):
    record = run_toy(tmp_path / "r", toy, algorithm="scaffold", participation="always")
    checkpoint = record.path / "checkpoint"
    intruder = pack({"state": {}, "other": {"x": torch.zeros(1)}})
    if name == "server":
        path = checkpoint / f"server-{record.round}.safetensors"
        path.write_bytes(intruder)
        manifest = unseal((checkpoint / "manifest.json").read_bytes())[0] | {"server": sha256(intruder)}
        (checkpoint / "manifest.json").write_bytes(seal(json.dumps(manifest)))
        read = record.saved_server
    else:
        record.resume()
        saved = record._states[0]._replace(digest=sha256(intruder)[:32])
        record._states[0] = saved
        (checkpoint / saved.file).write_bytes(intruder)

        def read():
            return record.client_state(0)

    with pytest.raises(UserError, match="unknown group 'other'"):
        read()


def test_a_manifest_with_more_rounds_than_there_are_numbers(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy)
    path = record.path / "checkpoint" / "manifest.json"
    path.write_bytes(seal(json.dumps(unseal(path.read_bytes())[0] | {"round": 2**70})))
    with pytest.raises(UserError, match="its rounds are not those of the checkpoint"):
        record.rounds()


@pytest.mark.parametrize("change", [{"accuracy": [5]}, {"accuracy": 1e308}, {"recall": [[1], [2]]}, {"recall": [True]}])
def test_rounds_whose_scores_are_none(tmp_path, toy, change):
    record = run_toy(tmp_path / "r", toy)
    *others, last = (record.path / "rounds.jsonl").read_text().splitlines()
    data = "\n".join([*others, json.dumps(json.loads(last) | change), ""]).encode()
    (record.path / "rounds.jsonl").write_bytes(data)
    path = record.path / "checkpoint" / "manifest.json"
    manifest = unseal(path.read_bytes())[0] | {"bytes": len(data), "rounds": sha256(data)}
    path.write_bytes(seal(json.dumps(manifest)))
    with pytest.raises(UserError, match="no percentage"):
        record.rounds()


def test_fuzzed_files_end_in_a_sentence(tmp_path):
    """A short one of `tools/fuzz_files.py`."""
    seen: list[str] = []
    assert fuzz_files.fuzz(460, 7, tmp_path, seen.append) == []
    assert len(set(seen)) == 23


def test_the_fuzzer_notices_a_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("rebafl.data.own.read_npz", lambda path, wanted: 1 / 0)
    problems = fuzz_files.fuzz(23, 7, tmp_path)
    assert any("npz" in problem and "Traceback" in problem for problem in problems)


@pytest.mark.parametrize(
    "odd",
    [{"loss": ""}, {"loss": [1e308] * 3}, {"seconds": None}, {"validation_loss": "x"}, {"over_clients": {"m": {}}}],
)
def test_a_round_whose_numbers_are_none_is_refused(odd):
    line = round_line().plain()
    assert RoundLine.read(line).loss == 0.0
    assert RoundLine.read({**line, "loss": None}).loss is None, "as a loss that is not finite is written"
    with pytest.raises(ValueError, match="is no number"):
        RoundLine.read({**line, **odd})
