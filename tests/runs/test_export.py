"""The trained model leaves the run directory unchanged in every number; a damaged export is refused."""

import importlib
import json
import re
import runpy
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import rebafl
from rebafl import data as datasets
from rebafl.base.errors import UserError
from rebafl.base.sealed import unseal
from rebafl.models.choice import ModelChoice, make_net
from rebafl.runs import export as deploy
from support.damage import flips
from support.toy import TinyNet, run_toy


@pytest.fixture
def exported(tmp_path, toy):
    run_toy(tmp_path / "run", toy, model=TinyNet, rounds=1)
    model = deploy.model_of_run(tmp_path / "run", TinyNet)
    # a folder names its model, so one that can be made again by name
    net = make_net(ModelChoice(kind="mlp"), (6,), 4, 0)
    deploy.export_model(replace(model, net=net, choice=ModelChoice(kind="mlp")), tmp_path / "e")
    return tmp_path / "e"


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_every_flipped_bit_of_an_export_is_noticed(exported, name):
    assert deploy.load_model(exported).classes == ("0", "1", "2", "3")
    whole = (exported / name).read_bytes()
    for damaged in flips(whole, 100):
        (exported / name).write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{re.escape(name)}.*rebafl export") as error:
            deploy.load_model(exported)
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


DATA = datasets.load("fashion-mini")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {"dataset": "fashion-mini", "rounds": 1, "workers": 1, "partition": {"clients": 3, "samples": 60},
                "training": {"epochs": 1}}  # fmt: skip
    return rebafl.simulate(settings, tmp_path_factory.mktemp("run") / "r", say=lambda text: None)


@pytest.fixture(scope="module")
def model(run):
    return deploy.model_of_run(run.path)


def test_the_model_is_the_one_that_was_scored(run, model):
    hits = (model.logits(DATA.x_test).argmax(1) == DATA.y_test).float().mean().item() * 100
    assert run.rounds()[-1].accuracy == pytest.approx(hits)


def test_export_and_load_give_the_same_numbers(model, tmp_path, capsys):
    files = deploy.export_model(model, tmp_path / "e")
    assert sorted(path.name for path in files) == ["load_model.py", "model.json", "model.safetensors"]
    again = deploy.load_model(tmp_path / "e")
    assert torch.equal(again.logits(DATA.x_test[:50]), model.logits(DATA.x_test[:50]))
    runpy.run_path(str(tmp_path / "e" / "load_model.py"))
    assert "Ankle boot" in capsys.readouterr().out


@pytest.mark.slow
def test_onnx_takes_pixels_and_gives_the_same_probabilities(model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    deploy.export_model(model, tmp_path / "e", onnx=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "e" / "model.onnx"))
    pixels = DATA.x_test[:7].permute(0, 3, 1, 2).float().numpy()
    (found,) = session.run(None, {"pixels": pixels})
    assert np.allclose(found, model.logits(DATA.x_test[:7]).softmax(1).numpy(), atol=1e-5)


def test_images_of_other_sizes_and_colours_are_brought_to_the_models(model, tmp_path):
    image = Image.fromarray(DATA.x_test[0, ..., 0].numpy())
    image.save(tmp_path / "same.png")
    image.resize((90, 90)).convert("RGB").save(tmp_path / "other.jpg")
    rows = deploy.predict(model, [tmp_path / "same.png", tmp_path / "other.jpg"])
    assert torch.allclose(rows[0], model.logits(DATA.x_test[:1]).double().softmax(1)[0])
    assert torch.allclose(rows.sum(1), torch.ones(2, dtype=torch.float64))
    assert (rows[0] - rows[1]).abs().max() < 0.3


def test_prior_correction_by_hand():
    """P_t(y|x) ∝ P_s(y|x) P_t(y) / P_s(y)."""
    logits = torch.tensor([[1.0, 0.0]])
    p = torch.tensor([0.2, 0.8]) * logits.exp() / torch.tensor([0.5, 0.5])
    assert torch.allclose(deploy.corrected(logits, [0.2, 0.8]).float(), p / p.sum())
    q = torch.tensor([0.2, 0.8]) * logits.exp() / torch.tensor([0.9, 0.1])
    assert torch.allclose(deploy.corrected(logits, [1, 4], [9, 1]).float(), q / q.sum())
    assert torch.allclose(deploy.corrected(logits, None), logits.double().softmax(1))
    assert deploy.corrected(logits, [1, 0]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("prior", [[1.0], [1, -1], [0, 0], [float("nan"), 1], []])
def test_priors_that_are_none(prior):
    with pytest.raises(UserError, match="prior"):
        deploy.corrected(torch.zeros(1, 2), prior)


def test_what_is_no_export(tmp_path, model, toy):
    with pytest.raises(UserError, match="exported model"):
        deploy.load_model(tmp_path)
    deploy.export_model(model, tmp_path / "e")
    (tmp_path / "e" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="exported model"):
        deploy.load_model(tmp_path / "e")
    run_toy(tmp_path / "own", toy)
    with pytest.raises(UserError, match="from Python"):
        deploy.model_of_run(tmp_path / "own")
    assert deploy.model_of_run(tmp_path / "own", TinyNet).classes == ("0", "1", "2", "3")


def run_npz(folder):
    """One round on the data set d.npz in this folder."""
    settings = {"dataset": str(folder / "d.npz"), "rounds": 1, "workers": 1, "partition": {"kind": "iid", "clients": 2}}
    return rebafl.simulate(settings, folder / "r", say=lambda text: None)


def test_the_data_set_is_not_needed_to_predict(tmp_path):
    """Own data may be gone or changed: what the model must know of its inputs is kept with the run."""
    arrays = {f"{k}_{p}": getattr(DATA, f"{k}_{p}").numpy()[:200] for k in "xy" for p in ("train", "test")}
    np.savez(tmp_path / "d.npz", **arrays)
    run = run_npz(tmp_path)
    before = deploy.model_of_run(run.path).logits(DATA.x_test[:3])
    (tmp_path / "d.npz").unlink()
    assert torch.equal(deploy.model_of_run(run.path).logits(DATA.x_test[:3]), before)


def test_a_model_of_floating_point_arrays_refuses_image_files(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 28, 28))
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(40) % 2, x_test=x, y_test=np.arange(40) % 2)
    run = run_npz(tmp_path)
    with pytest.raises(UserError, match="arrays of numbers"):
        deploy.predict(deploy.model_of_run(run.path), [tmp_path / "x.png"])


def test_an_export_does_not_overwrite_other_things(tmp_path, model):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        deploy.export_model(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


OWN_NET = """
from torch import nn
from rebafl import Classifier

class Net(Classifier):
    def __init__(self, shape, classes):
        super().__init__()
        self.hidden, self.head = nn.Linear(shape[0], 3), nn.Linear(3, classes)
    def features(self, x):
        return self.hidden(x)
"""


def test_an_exported_own_model_says_what_must_be_importable(tmp_path, toy, monkeypatch):
    (tmp_path / "own_nets.py").write_text(OWN_NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path / "..")  # the current folder is looked in, too
    net = importlib.import_module("own_nets").Net
    rebafl.export_model(rebafl.model_of_run(run_toy(tmp_path / "r", toy, model=net).path, net), tmp_path / "e")
    with pytest.raises(UserError, match="trust-code"):
        rebafl.load_model(tmp_path / "e")
    assert (
        rebafl.load_model(tmp_path / "e", trust_code=True).classes
        == rebafl.load_model(tmp_path / "e", model=net).classes
    )
    monkeypatch.undo()
    sys.modules.pop("own_nets")
    with pytest.raises(UserError, match=r"the model own_nets:Net, .* put the module own_nets into the current folder"):
        rebafl.load_model(tmp_path / "e", trust_code=True)


def test_an_exported_model_of_a_script_must_be_given(tmp_path, toy):
    class Inner(TinyNet):
        pass

    rebafl.export_model(rebafl.model_of_run(run_toy(tmp_path / "r", toy, model=Inner).path, Inner), tmp_path / "e")
    with pytest.raises(UserError, match=r"defined in a script or a notebook; give what makes it: rebafl\.load_model"):
        rebafl.load_model(tmp_path / "e", trust_code=True)
    assert rebafl.load_model(str(tmp_path / "e"), model=Inner).classes == toy.classes
