"""Files that carry a digest: whatever bit is flipped is noticed and said; files of earlier versions are still read."""

import json
import random
import re
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch

from conftest import TinyNet, run_toy
from rebafl.base.errors import UserError
from rebafl.base.sealed import seal, unseal
from rebafl.base.tensors import pack
from rebafl.data import catalog
from rebafl.data.arrays import digest
from rebafl.federation.app.client_states import InFolder, recall
from rebafl.federation.app.members import Claimed
from rebafl.paper import results
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.runs import export as deploy

TAIL = 100  # bytes at the end, where the seal is: all of their bits are tried


def flips(data, count=300):
    """Damaged copies: each bit of the last bytes, and some of all others."""
    tail = range(8 * max(0, len(data) - TAIL), 8 * len(data))
    chosen = {*tail, *(random.Random(1).randrange(8 * len(data)) for _ in range(count))}
    for bit in sorted(chosen):
        copy = bytearray(data)
        copy[bit // 8] ^= 1 << bit % 8
        yield bytes(copy)


@pytest.mark.parametrize("text", ['{"a": 1}', '{\n "a": [1, 2],\n "b": {"c": "ü"}\n}\n', '{"a": {"sha256": "x"}}'])
def test_a_sealed_object_comes_back_and_says_that_it_was_sealed(text):
    assert unseal(seal(text)) == (json.loads(text), True)
    assert unseal(text.encode()) == (json.loads(text), False)
    assert json.loads(seal(text)).keys() == {*json.loads(text), "sha256"}, "still plain JSON"


def test_no_flipped_bit_gives_the_same_keys_and_passes():
    data = seal('{\n "rounds": 3,\n "curve": [1.5, 2.5]\n}')
    for damaged in flips(data, 2000):
        with suppress(ValueError):
            found, sealed = unseal(damaged)
            assert not sealed
            assert found.keys() != {"rounds", "curve"}, damaged


def kept_result(tmp_path, toy):
    """The result of a cell, as a finished run leaves it."""
    cell = cells(find_item("table1"), find_scale("quick"))[0]
    run = run_toy(tmp_path / "run", toy)
    return cell, results.keep(cell, run, tmp_path / "results")


def test_every_flipped_bit_of_a_result_is_noticed(tmp_path, toy):
    cell, path = kept_result(tmp_path, toy)
    whole = path.read_bytes()
    assert results.read(cell, tmp_path / "results").rounds == 3
    for damaged in flips(whole):
        path.write_bytes(damaged)
        with pytest.raises(UserError) as error:
            results.read(cell, tmp_path / "results")
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_results_of_earlier_versions_are_read_as_they_are(tmp_path, toy):
    cell, path = kept_result(tmp_path, toy)
    found, sealed = unseal(path.read_bytes())
    assert sealed
    path.write_text(json.dumps(found))
    before = path.read_bytes()
    assert results.read(cell, tmp_path / "results").curves == found["curves"]
    assert path.read_bytes() == before


@pytest.fixture
def exported(tmp_path, toy):
    run_toy(tmp_path / "run", toy, model=TinyNet, rounds=1)
    model = deploy.model_of_run(tmp_path / "run", TinyNet)
    from rebafl.models.choice import ModelChoice

    # a folder names its model, so one that can be made again by name
    net = deploy.make_net(ModelChoice(kind="mlp"), (6,), 4, 0)
    deploy.export_model(replace(model, net=net, choice=ModelChoice(kind="mlp")), tmp_path / "e")
    return tmp_path / "e"


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_every_flipped_bit_of_an_export_is_noticed(exported, name):
    assert deploy.load_model(exported).classes == ("0", "1", "2", "3")
    whole = (exported / name).read_bytes()
    for damaged in flips(whole, 100):
        (exported / name).write_bytes(damaged)
        with pytest.raises(UserError) as error:
            deploy.load_model(exported)
        assert name in str(error.value)
        assert "rebafl export" in str(error.value)
        assert "\n" not in str(error.value)


def test_an_export_of_an_earlier_version_is_read_and_one_that_lost_its_digest_is_not(exported):
    found, _ = unseal((exported / "model.json").read_bytes())
    (exported / "model.json").write_text(json.dumps(found))
    with pytest.raises(UserError, match="weights_sha256"):
        deploy.load_model(exported)
    del found["weights_sha256"]
    (exported / "model.json").write_text(json.dumps(found, indent=2))
    assert deploy.load_model(exported).classes == ("0", "1", "2", "3")


def test_an_export_that_was_killed_can_be_made_again(exported):
    (exported / "model.json.aside").write_bytes(b"half")
    deploy.export_model(deploy.load_model(exported), exported)
    assert deploy.load_model(exported).classes == ("0", "1", "2", "3")


STATE = {"control": torch.arange(5.0)}


def test_a_flipped_bit_of_a_nodes_state_counts_as_lost(tmp_path):
    kept = InFolder(tmp_path)
    kept.put(3, STATE)
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"round-3-[0-9a-f]{64}\.safetensors", path.name)
    assert torch.equal(recall(kept, 3)[0]["control"], STATE["control"])
    for damaged in flips(path.read_bytes(), 100):
        path.write_bytes(damaged)
        state, reason = recall(kept, 3)
        assert state is None
        assert "the state after round 3 is damaged" in reason


def test_states_of_earlier_versions_are_read_and_a_round_has_one_file(tmp_path):
    kept = InFolder(tmp_path)
    (tmp_path / "round-3.safetensors").write_bytes(pack({"state": STATE}))
    assert torch.equal(recall(kept, 3)[0]["control"], STATE["control"])
    kept.put(3, {"control": torch.ones(2)})
    kept.put(3, {"control": torch.zeros(2)})
    kept.put(4, STATE)
    assert kept.rounds() == [3, 4]
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(recall(kept, 3)[0]["control"], torch.zeros(2))
    assert [path.name[:8] for path in tmp_path.iterdir()] == ["round-3-"], "what does not count is removed"


def test_every_flipped_bit_of_the_table_of_members_is_noticed(tmp_path):
    file = tmp_path / "members.json"

    def table():
        return Claimed(file, 3, lambda nodes: dict.fromkeys(nodes, -1))

    nodes = [SimpleNamespace(node_id=number, public_key=f"key {number}".encode()) for number in (1, 2)]
    found = table().clients(nodes)
    assert table().clients(nodes) == found
    whole = file.read_bytes()
    for damaged in flips(whole):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"members\.json is damaged"):
            table()
    file.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "sha256"}))  # as it used to be
    assert table().clients(nodes) == found


def test_a_cached_data_set_with_a_flipped_bit_is_refused_or_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    random_bytes = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), dtype=np.uint8)
    arrays = {"x_train": random_bytes[:6], "y_train": np.arange(6), "x_test": random_bytes[6:], "y_test": np.arange(3)}
    spec = replace(catalog.CIFAR_10, digest=digest(arrays), sources=(), places=())
    catalog._store(spec, arrays)
    path = tmp_path / "cifar-10.safetensors"
    whole, refused = path.read_bytes(), 0
    chance = random.Random(3)
    for _ in range(200):
        copy = bytearray(whole)
        copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        path.write_bytes(copy)
        try:
            loaded = catalog.load_known(spec, lambda text: None)
        except UserError as error:
            refused += 1
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:
            assert loaded.digest == spec.digest
            assert np.array_equal(loaded.x_train.numpy(), arrays["x_train"])
    assert refused > 150
    path.write_bytes(whole)
    assert safetensors.numpy.load_file(path).keys() == arrays.keys()
