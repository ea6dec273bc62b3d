"""The notebooks run as they stand, in a fresh process each, without Jupyter: their code cells one after the other."""

import json
import os
import re
import subprocess
import sys

import pytest

from support.paths import DOCS

NOTEBOOKS = sorted((DOCS.parent / "examples").glob("*.ipynb"))
LAST = {
    "first_steps": r"took part in the last round",
    "own_data_model_method": r"defined in a script or a notebook; give what.*\n\('north', 'east', 'south', 'west'\)",
}


def cells(path, kind):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    (tmp_path / "cells.py").write_text("\n\n".join(cells(path, "code")))
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert re.search(LAST[path.stem], done.stdout), done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one_and_keeps_no_output_of_a_machine(path):
    book = json.loads(path.read_text())
    assert (book["nbformat"], len(book["cells"]) > 8) == (4, True)
    assert all(cell["outputs"] == [] for cell in book["cells"] if cell["cell_type"] == "code")
    assert cells(path, "markdown")[0].startswith("# ")


def test_every_notebook_is_told_of():
    assert set(LAST) == {path.stem for path in NOTEBOOKS}
    page = (DOCS / "python.md").read_text()
    assert all(path.name in page for path in NOTEBOOKS)
