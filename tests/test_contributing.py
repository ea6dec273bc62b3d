"""What contributors are told is true: the same linters everywhere, files that exist, a site that builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rebafl

ROOT = Path(__file__).parent.parent


def test_the_hooks_before_a_commit_are_the_linters_of_make():
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    linters = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert hooks == linters


def test_the_citation_is_of_this_version():
    assert f"\nversion: {rebafl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_knows_this_version():
    versions = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert rebafl.__version__ in versions


def test_files_that_contributors_are_sent_to_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|tests|docs|tools)/[\w./-]+)`", text) + re.findall(r"\]\((?!http)([^)#]+)", text)
    real = [path for path in named if not re.search(r"NAME|ROOM|MODULE", path)]
    assert len(real) > 10
    assert [path for path in real if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_can_be_searched(tmp_path):
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-d", str(tmp_path / "doctrees")]
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "site")], check=True)
    reference = (tmp_path / "site" / "api.html").read_text()
    assert [name for name in rebafl.__all__ if f'id="rebafl.{name}"' not in reference] == []
    assert "rollback" in (tmp_path / "site" / "searchindex.js").read_text()
    assert "../src/" not in (tmp_path / "site" / "reproduction.html").read_text()
