"""The modules stand in one order, and what must never be used is not used."""

import ast
from pathlib import Path

import pytest

import rebafl

SOURCE = Path(rebafl.__file__).parent
ORDER = [
    "base", "data", "models", "population", "algorithms", "training", "engines", "runs", "deploy", "federation",
    "bench", "paper", "report", "cli", "__main__",
]  # fmt: skip
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent.name != "peers")  # those run elsewhere


def module_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports, by their place in the order."""
    depth = len(path.relative_to(SOURCE).parts) - 1
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth + 1:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", [f for f in FILES if f != SOURCE / "__init__.py"], ids=lambda p: p.stem)
def test_imports_point_upwards_only(path):
    own = module_of(path)
    above = ORDER[: ORDER.index(own)]
    assert imported(path) <= {*above, own}


def test_the_order_names_every_module():
    assert {module_of(path) for path in FILES} - {"__init__"} == set(ORDER)


def test_every_module_says_what_question_it_answers():
    silent = [
        p.name for p in FILES if not ast.get_docstring(ast.parse(p.read_text())) and p.parent.name != "algorithms"
    ]
    assert silent == []


@pytest.mark.parametrize(
    "word",
    ["import pickle\n", " torch.load(", "torch.manual_seed", "np.random.seed", "allow_pickle=True", "import random"],
)
def test_no_pickles_and_no_global_random_state(word):
    assert [path.name for path in FILES if word in path.read_text()] == []


def test_algorithms_are_final_and_one_level_deep():
    from rebafl.algorithms import KINDS
    from rebafl.algorithms.interface import Algorithm

    assert all(kind.__bases__ == (Algorithm,) for kind in KINDS.values())
