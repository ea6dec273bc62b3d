"""What the documents show is what the code says and does."""

import json
import re
import sys
import textwrap
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from rebafl.algorithms import KINDS
from rebafl.base.config import parse_assignments
from rebafl.base.errors import UserError
from rebafl.base.rng import torch_stream
from rebafl.models.contract import weights_of
from rebafl.paper.items import cells, find_item, find_scale
from rebafl.paper.results import read
from rebafl.report.chaos import chaos_table
from rebafl.report.markdown import with_generated
from rebafl.report.reference import pages
from rebafl.report.speed import performance
from rebafl.runs.settings import make_settings
from support.paths import DOCS, RESULTS
from support.toy import TinyNet, run_toy, same_bits, weights


@pytest.mark.parametrize("name", list(pages()))
def test_the_generated_parts_are_up_to_date(name):
    page = (DOCS / name).read_text()
    assert with_generated(page, pages()[name]) == page, "run tools/make_docs.py"


def test_the_measured_numbers_shown_are_those_that_were_measured():
    page = (DOCS / "performance.md").read_text()
    measured = [json.loads((DOCS / "measured" / f"{name}.json").read_text()) for name in ("race", "scale", "memory")]
    assert with_generated(page, performance(*measured)) == page, "run tools/make_docs.py"


def test_the_disturbed_run_shown_is_the_one_that_was_run():
    page = (DOCS / "federation.md").read_text()
    assert with_generated(page, chaos_table(json.loads((DOCS / "measured" / "chaos.json").read_text()))) == page


@pytest.mark.parametrize("name", list(KINDS))
def test_every_page_has_a_runnable_example(name):
    (words,) = re.findall(r"^ {4}rebafl run (.+)$", (DOCS / "algorithms" / f"{name}.md").read_text(), re.MULTILINE)
    assert make_settings(parse_assignments(words.split())).algorithm.name == name


def test_what_mu_does_to_rebafl_is_what_its_committed_cells_say():
    page, best = (DOCS / "algorithms" / "rebafl.md").read_text(), {}
    for cell in cells(find_item("fig-hyper"), find_scale("quick")):
        if cell.method.startswith("μ"):
            best[cell.settings.dataset, cell.method] = f"{read(cell, RESULTS).measure('best'):.1f}"
    numbers = {
        row: " | ".join(best[data, f"μ = {mu}"] for data in ("fashion-mini", "cifar-mini") for mu in which)
        for row, which in {"as in the paper": (0.1, 0.5), "without augmentation, μ = 0": (0, 0)}.items()
    }
    for row, shown in numbers.items():
        assert f"| {row} | {shown} |" in page


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The module shown in docs/own-algorithm.md, as a user would save it."""
    (code,) = re.findall(r"```python\n# decay.py\n(.+?)```", (DOCS / "own-algorithm.md").read_text(), re.DOTALL)
    (tmp_path / "decay.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    yield code
    sys.modules.pop("decay", None)


def test_the_own_algorithm_of_the_documents_runs_and_resumes(example, tmp_path, toy):
    assert len(example.strip().splitlines()) <= 40
    own = {"kind": "decay:TiredClients", "rate": 0.5}
    whole = run_toy(tmp_path / "w", toy, algorithm=own, rounds=4, workers=2)
    run_toy(tmp_path / "r", toy, algorithm=own, rounds=2)
    resumed = run_toy(tmp_path / "r", toy, algorithm=own, rounds=4)
    assert same_bits(weights(whole), weights(resumed))
    assert whole.config()["algorithm"]["kind"] == "decay:TiredClients"
    assert any(whole.checkpoint.glob("client-*"))
    assert not same_bits(weights(whole), weights(run_toy(tmp_path / "f", toy, algorithm="fedavg", rounds=4)))


def test_the_own_algorithm_on_the_server_of_the_documents_runs(tmp_path, toy, monkeypatch):
    (code,) = re.findall(r"```python\n# heavy.py\n(.+?)```", (DOCS / "own-algorithm.md").read_text(), re.DOTALL)
    (tmp_path / "heavy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    heavy = run_toy(tmp_path / "h", toy, algorithm={"kind": "heavy:HeavyServer", "beta": 0.5})
    plain = run_toy(tmp_path / "p", toy, algorithm={"kind": "heavy:HeavyServer", "beta": 0.0})
    sys.modules.pop("heavy")
    average = run_toy(tmp_path / "f", toy, algorithm="fedavg")
    assert same_bits(weights(plain), weights(average)), "without momentum it is FedAvg"
    assert not same_bits(weights(heavy), weights(average))
    assert all(line.updated for line in heavy.rounds())


def test_what_is_no_algorithm_is_refused():
    for name in ("math:pi", "nowhere:X", "rebafl.algorithms.interface:Nothing"):
        with pytest.raises(UserError, match="algorithm"):
            KINDS.find(name)
    assert KINDS.kind_of(KINDS["moon"]) == "moon"


def test_a_name_from_an_entry_point_is_found(example, monkeypatch):
    points = EntryPoints([EntryPoint("tired-clients", "decay:TiredClients", "rebafl.algorithms")])
    monkeypatch.setattr("rebafl.base.kinds.entry_points", lambda **chosen: points.select(**chosen))
    settings = make_settings({"algorithm": "tired-clients"})
    assert settings.plain()["algorithm"]["rate"] == 0.9
    assert settings.plain()["algorithm"]["kind"] == "tired-clients"
    assert make_settings(settings.plain()) == settings


def test_the_readmes_own_loop_works(toy):
    """The ten lines are run as they stand, on names that a user would have."""
    readme = (DOCS.parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(from rebafl import class_prototypes.+?)```", readme, re.DOTALL)
    with torch_stream(0, "model"):
        model = TinyNet()
    x, y = toy.inputs(toy.x_train[:100]), toy.y_train[:100]
    before = weights_of(model)["head.weight"].clone()
    names: dict[str, Any] = {
        "torch": torch, "classes": 4, "labels": y, "model": model, "batches": [(x[:50], y[:50]), (x[50:], y[50:])],
        "prototypes": torch.randn(4, 5), "features_of_all_local_samples": model.features(x).detach(),
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
    }  # fmt: skip
    exec(code, names)
    assert not torch.equal(weights_of(model)["head.weight"], before)
    assert names["own_prototypes"].shape == (4, 5)


def test_the_readmes_run_from_python_works_on_small_data(toy, tmp_path, monkeypatch):
    """As it stands, on 200 samples; fewer rounds are enough to see it."""
    readme = (DOCS.parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(import rebafl\n\ndata = .+?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    parts = [TensorDataset(x, y) for x, y in ((toy.x_train, toy.y_train), (toy.x_test, toy.y_test))]
    names = {"train_dataset": parts[0], "test_dataset": parts[1], "MyNet": TinyNet, "images": toy.x_test}
    exec(code.replace("rounds=20", "rounds=2, workers=1"), names)
    assert names["run"].accuracy.shape == (2,)


def test_every_command_in_the_readme_is_known():
    readme = (DOCS.parent / "README.md").read_text().replace("\\\n", " ")
    for words in re.findall(r"^ {4}rebafl run (.+?)(?: {2,}#.*)?$", readme, re.MULTILINE):
        pairs = [word for word in words.split() if "=" in word and not word.startswith("out=")]
        assert make_settings(parse_assignments(pairs)).rounds >= 50


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), DOCS.parent / "README.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
