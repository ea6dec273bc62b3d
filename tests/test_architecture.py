"""The modules stand in one order, the picture of it is true, and what must never be used is not used."""

import ast
import re

import pytest

from architecture import (
    INIT,
    PACKAGE,
    ROOT,
    Order,
    Sources,
    arrows,
    defined_in,
    picture,
    problems,
    question,
    read_order,
    table,
    unknown_names,
)
from rebafl.report.markdown import with_generated

ORDER = read_order()
SOURCES = Sources(ROOT / "src" / PACKAGE, ORDER.outside)
FILES = list(SOURCES.modules.values())
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_module_names_only_what_stands_before_it():
    assert problems(SOURCES, ORDER) == []


def test_what_the_project_file_names_exists():
    text = (ROOT / "pyproject.toml").read_text()
    assert "rebafl.federation.app.client_app:app" in text
    assert unknown_names(SOURCES, text) == []


def test_every_exception_gives_its_reason():
    assert all(each.keys() == {"file", "names", "reason"} and each["reason"] for each in ORDER.exceptions)


# That each kind of violation is noticed, shown with a package of two layers. Its modules say nothing but this:
CLEAN = {
    "__init__.py": "from .high.two import value",
    "low/__init__.py": "",
    "low/one.py": "value = 1",
    "low/two.py": "from .one import value",
    "side/__init__.py": "",
    "side/one.py": "value = 1",
    "high/__init__.py": "from .one import run",
    "high/one.py": "from ..low import two\nrun = 'rebafl.low.one:value'",
    "high/two.py": "from . import run\nfrom ..low.one import value\n'''See rebafl.value.'''",
    "high/inner/__init__.py": "",
    "high/inner/one.py": "from ..two import value",
    "high/start.sh": "python -m rebafl.high.one",
}
SMALL = Order(
    layers=[["low", "side"], ["high"], ["__init__"]],
    modules={
        "low": ["one", "two"], "side": ["one"], "high": ["one", "__init__", "two", "inner"], "high.inner": ["one"],
    },
)  # fmt: skip


def found(folder, files, **other):
    """What is objected to in the small package with some files of it replaced."""
    for name, text in (CLEAN | files).items():
        path = folder / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    order = Order(**{**vars(SMALL), **other})
    return problems(Sources(folder / PACKAGE, order.outside), order)


def test_nothing_is_objected_to_in_an_orderly_package(tmp_path):
    assert found(tmp_path, {}) == []


BEFORE, MISSING = "which does not stand before it", "which does not exist"


@pytest.mark.parametrize(
    ("file", "text", "objection"),
    [
        ("low/one.py", "from ..high.one import run", f"1 names rebafl.high.one.run, {BEFORE}"),
        ("low/one.py", "value = 1\nfrom .. import high", f"2 names rebafl.high, {BEFORE}"),
        ("low/one.py", "import rebafl.high.one as other", f"1 names rebafl.high.one, {BEFORE}"),
        ("low/one.py", "from rebafl.high import run", f"1 names rebafl.high.run, {BEFORE}"),
        ("low/one.py", "from rebafl import value", f"1 names rebafl.value, {BEFORE}"),
        ("low/one.py", "import rebafl", f"1 names rebafl, {BEFORE}"),
        ("low/one.py", "def later():\n    from ..high import run", f"2 names rebafl.high.run, {BEFORE}"),
        ("low/one.py", "from .two import value", f"1 names rebafl.low.two.value, {BEFORE}"),
        ("low/one.py", "from ..side.one import value", f"1 names rebafl.side.one.value, {BEFORE}"),
        ("high/one.py", "from . import run", f"1 names rebafl.high.run, {BEFORE}"),
        ("high/two.py", "from .inner.one import value", f"1 names rebafl.high.inner.one.value, {BEFORE}"),
        ("high/inner/__init__.py", "from .one import value", f"1 names rebafl.high.inner.one.value, {BEFORE}"),
        ("low/one.py", "app = 'rebafl.high.one:run'", f"1 names rebafl.high.one.run, {BEFORE}"),
        ("low/one.py", "app = f'python -m rebafl.high.one {1}'", f"1 names rebafl.high.one, {BEFORE}"),
        ("low/start.sh", "cd .\nexec python -m rebafl.high.one", f"2 names rebafl.high.one, {BEFORE}"),
        ("low/more/start.sh", "exec python -m rebafl.high.one", f"1 names rebafl.high.one, {BEFORE}"),
        ("high/two.py", "from .nowhere import run", f"1 names rebafl.high.nowhere.run, {MISSING}"),
        ("high/two.py", "from ..low.one import nothing", f"1 names rebafl.low.one.nothing, {MISSING}"),
        ("high/two.py", "import rebafl.nowhere", f"1 names rebafl.nowhere, {MISSING}"),
        ("high/two.py", "from ....nowhere import x", MISSING),
        ("high/two.py", "name = 'rebafl.low.one:nothing'", f"1 names rebafl.low.one.nothing, {MISSING}"),
        ("high/two.py", "'''See rebafl.nothing.'''", f"1 names rebafl.nothing, {MISSING}"),
        ("high/start.sh", "python -m rebafl.high.nowhere", f"1 names rebafl.high.nowhere, {MISSING}"),
    ],
)
def test_every_kind_of_violation_is_noticed(file, text, objection, tmp_path):
    kept = "\nvalue = run = 1" if file.endswith(".py") else ""  # what the others import
    (only,) = found(tmp_path, {file: text + kept})
    assert only.startswith(f"{file}:")
    assert only.endswith(objection)


def test_modules_that_are_not_listed_or_not_there_are_noticed(tmp_path):
    assert found(tmp_path, {"low/three.py": "", "odd/__init__.py": ""}) == [
        "low/three.py is not listed in docs/architecture.toml",
        "odd/__init__.py is not listed in docs/architecture.toml",
    ]
    modules = {**SMALL.modules, "side": ["one", "two"]}
    unlisted = {"layers": [["low", "side"], ["high"], ["__init__"], ["odd"]], "modules": {**modules, "odd": []}}
    (tmp_path / "rebafl" / "low" / "three.py").unlink()
    assert found(tmp_path, {}, **unlisted) == ["side/two.py is listed in docs/architecture.toml, but does not exist"]


def test_an_exception_excuses_one_name_in_a_string_but_no_import(tmp_path):
    excused = [{"file": "low/one.py", "names": "rebafl.high.one", "reason": "starts a process"}]
    text = "command = 'python -m rebafl.high.one'\nvalue = 1"
    assert found(tmp_path, {"low/one.py": text}, exceptions=excused) == []
    assert len(found(tmp_path, {"low/one.py": f"{text}\nother = 'rebafl.high.two'"}, exceptions=excused)) == 1
    imported = found(tmp_path, {"low/one.py": "import rebafl.high.one\nvalue = 1"}, exceptions=excused)
    assert imported == [
        f"low/one.py:1 names rebafl.high.one, {BEFORE}",
        "low/one.py needs no exception for rebafl.high.one",
    ]


def test_what_runs_elsewhere_names_nothing_of_the_package(tmp_path):
    assert found(tmp_path, {"low/peers/run.py": "import torch"}, outside=["low/peers"]) == []
    own = found(tmp_path, {"low/peers/run.py": "from rebafl.low import one"}, outside=["low/peers"])
    assert own == ["low/peers/run.py:1 names rebafl.low.one"]


def test_the_picture_and_the_table_are_up_to_date():
    assert (ROOT / "docs" / "architecture.svg").read_text() == picture(SOURCES, ORDER), "run tools/make_docs.py"
    assert with_generated(PAGE, table(SOURCES, ORDER)) == PAGE, "run tools/make_docs.py"


def test_the_picture_shows_every_package_and_what_it_imports(tmp_path):
    packages = [name for layer in ORDER.layers[:-1] for name in layer]
    drawn = picture(SOURCES, ORDER)
    assert re.findall(r'class="name">(\w+)/<', drawn) == [name for layer in ORDER.layers[-2::-1] for name in layer]
    assert drawn.count('class="arrow"') == sum(user in packages for user, _ in arrows(SOURCES, ORDER))
    found(tmp_path, {"side/one.py": ""})
    assert arrows(Sources(tmp_path / PACKAGE), SMALL) == [("high", "low"), ("__init__", "high")]


def test_every_package_begins_with_its_question():
    asked = {place: question(path) for place, path in SOURCES.modules.items() if place[-1] == INIT and place[:-1]}
    assert [place for place, text in asked.items() if "?" not in text] == []


WALKS = {
    part.splitlines()[0]: part for part in re.split(r"^## Walk \d: ", PAGE.partition("## Packages")[0], flags=re.M)[1:]
}


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_has_a_few_steps_that_each_name_a_function(walk):
    steps = re.split(r"^\d+\. ", WALKS[walk], flags=re.M)[1:]
    assert 6 <= len(steps) <= 12
    assert [step for step in steps if "](../src/" not in step] == []


@pytest.mark.parametrize("walk", WALKS)
def test_every_function_that_a_walk_names_is_where_it_says(walk):
    named = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/.]+)\)", WALKS[walk])
    assert len(named) == WALKS[walk].count("](../src/")
    wrong = [(name, file) for name, file in named if defined_in(SOURCES, name) != ROOT / file]
    assert wrong == []


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_a_function_that_is_not_there_would_be_noticed():
    assert defined_in(SOURCES, "runs.record.Record.commit") == ROOT / "src/rebafl/runs/record.py"
    assert defined_in(SOURCES, "engines.start_engine") == ROOT / "src/rebafl/engines/__init__.py"
    for name in ("runs.record.Record.nothing", "runs.record.nothing", "runs.nowhere.run", "runs.record"):
        assert defined_in(SOURCES, name) is None


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
