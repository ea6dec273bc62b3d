"""What users may import is in `rebafl` itself, and the documents and examples import nothing else."""

import ast
import re
from pathlib import Path

import pytest

import rebafl

ROOT = Path(__file__).parent.parent
PUBLIC = {
    # a run
    "Settings", "make_settings", "simulate", "Run", "load", "UserError", "__version__",
    # an algorithm
    "Algorithm", "Batch", "Client", "Context", "Costs", "Sent", "Server", "Task", "Training", "Upload",
    "ClientsTrained", "RoundLine", "RunStarted",
    "gradients", "moved", "parameters", "weighted_mean",
    # data, models, who holds what and who is there
    "Classifier", "Data", "from_arrays", "from_torch", "Partition", "Split", "Participation",
    # liars, and what is done about them
    "Attack", "Defence",
    # the trained model
    "export_model", "load_model", "model_of_run", "predict",
    # the method in one's own loop
    "balanced_softmax", "relaxed_balanced_softmax", "class_prototypes", "transfer_features",
}  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_public_names():
    assert set(rebafl.__all__) == PUBLIC
    assert all(hasattr(rebafl, name) for name in PUBLIC)


def imports(code):
    """Modules of this package that code imports, and what it takes from the package itself."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rebafl":
            found |= {alias.name if node.module == "rebafl" else node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("rebafl.")}
    return found


def code_in(path):
    return (
        [path.read_text()] if path.suffix == ".py" else re.findall(r"```python\n(.+?)```", path.read_text(), re.DOTALL)
    )


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "examples").rglob("*.py"))], ids=lambda path: path.stem)
def test_documents_and_examples_import_public_names_only(path):
    assert set().union(*map(imports, code_in(path))) <= PUBLIC


@pytest.mark.parametrize("path", [page for page in PAGES if page.stem != "architecture"], ids=lambda path: path.stem)
def test_documents_name_public_things_only(path):
    """`rebafl.simulate(…)` in a sentence; entry point groups are named in the same way."""
    groups = {"algorithms", "attacks", "datasets", "defences", "models", "partitions", "participations"}
    named = set(re.findall(r"(?<![\w./-])rebafl\.(?!md\b)(\w+)", path.read_text()))
    assert named <= PUBLIC | groups


def test_an_exported_folder_of_the_first_version_finds_what_it_imports():
    from rebafl.deploy import load, predict

    assert load.func is rebafl.load_model
    assert predict is rebafl.predict


def test_the_exported_loader_imports_public_names_only():
    from rebafl.runs.export import LOADER_TEXT

    assert imports(LOADER_TEXT) == {"load_model", "predict"}
