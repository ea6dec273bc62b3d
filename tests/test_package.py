"""The package as others get it: a wheel and an sdist, built and tried away from the repository."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rebafl.base.config import read_toml

ROOT = Path(__file__).parent.parent
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
NOT_FOR_USERS = {"all", "dev", "docs"}


def extras(requirement):
    """`rebafl[a,b]` -> {"a", "b"}."""
    return set(re.fullmatch(r"rebafl\[(.+)\]", requirement)[1].split(","))


def test_all_extras_are_in_all_and_the_tools_have_them():
    offered = PROJECT["optional-dependencies"]
    assert extras(offered["all"][0]) == offered.keys() - NOT_FOR_USERS
    assert extras(offered["dev"][0]) == {"all", "docs"}


def run(*words, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=280,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist, and the two."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return folder, wheel, sdist


@pytest.mark.slow
def test_the_wheel_runs_the_demo_without_the_repository(built, tmp_path):
    _, wheel, _ = built
    run(
        "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel, cwd=tmp_path
    )
    (tmp_path / "here").mkdir()
    where = {"cwd": tmp_path / "here", "PYTHONPATH": str(tmp_path / "site")}
    assert run("-c", "import rebafl; print(rebafl.__file__)", **where).strip().startswith(str(tmp_path / "site"))
    small = ["rounds=1", "partition.clients=3", "partition.samples=20", "training.epochs=1", "workers=1"]
    assert "fedavg" in run("-m", "rebafl", "demo", *small, **where)
    assert (tmp_path / "here" / "demo" / "curves.png").stat().st_size > 5000
    assert (tmp_path / "site" / "bin" / "rebafl").exists()
    assert "like yours" in run("-m", "rebafl", "advise", **where), "it knows the results without their folder"


@pytest.mark.slow
def test_the_wheel_holds_all_of_the_package_and_says_what_it_is(built):
    _, wheel, _ = built
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "src/rebafl"], capture_output=True, text=True, check=False
    ).stdout.split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert names >= {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()}
    assert f"Version: {PROJECT['version']}" in metadata
    assert all(f"Provides-Extra: {name}" in metadata for name in PROJECT["optional-dependencies"])
    assert all(f"Project-URL: {name}, {url}" in metadata for name, url in PROJECT["urls"].items())


@pytest.mark.slow
def test_a_wheel_made_from_the_sdist_is_the_same(built, tmp_path):
    _, wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    run("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=unpacked)
    (again,) = (tmp_path / "again").glob("*.whl")
    contents = []
    for path in (wheel, again):
        with zipfile.ZipFile(path) as one:
            contents.append({name: one.read(name) for name in one.namelist()})
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_flower_builds_the_thin_app(tmp_path):
    pytest.importorskip("flwr")
    app = shutil.copytree(ROOT / "examples" / "flower-app", tmp_path / "flower-app")
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run([flwr, "build"], cwd=app, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = app.glob("*.fab")
    with zipfile.ZipFile(bundle) as archive:
        assert {"pyproject.toml", "README.md"} <= set(archive.namelist())


def test_the_thin_app_says_what_the_package_says():
    """Its components and the keys that it sets are those of the app in the package's own pyproject.toml."""
    whole, thin = (read_toml(path)["tool"]["flwr"]["app"] for path in (
        ROOT / "pyproject.toml", ROOT / "examples" / "flower-app" / "pyproject.toml"))  # fmt: skip
    assert thin["components"] == whole["components"]
    assert all(whole["config"][key] == value for key, value in thin["config"].items())
