"""What is changed in Flower is in one module, and only for the version that it was written for."""

import ast
import os
import subprocess
import sys

import pytest

from rebafl.base.config import read_toml
from rebafl.base.errors import UserError
from rebafl.federation import flower_changes
from rebafl.federation.flower_changes import FLOWER, need_flower
from rebafl.federation.flower_changes import installed as installed_flower
from support.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "rebafl"
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp")  # what Flower documents and promises to keep
OWNERS = {"self", "cls", "os"}  # `os._exit` is documented


def test_the_installed_version_is_the_right_one():
    need_flower()
    extra = read_toml(REPOSITORY / "pyproject.toml")["project"]["optional-dependencies"]["flower"]
    assert extra == [f"flwr>={FLOWER},<1.{int(FLOWER.split('.')[1]) + 1}"]


@pytest.mark.parametrize("installed", ["1.40.2", "1.42.0", "2.0.0", "1.4", "1.410.0"])
def test_another_version_of_flower_is_one_sentence(monkeypatch, installed):
    monkeypatch.setattr(installed_flower, "version", lambda name: installed)
    with pytest.raises(
        UserError, match=rf"needs Flower {FLOWER}, and flwr {installed} is installed; install"
    ) as caught:
        need_flower()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("installed", [FLOWER, f"{FLOWER}.0", f"{FLOWER}.7"])
def test_every_release_of_that_version_will_do(monkeypatch, installed):
    asked = []

    def version(name):
        asked.append(name)
        return installed

    monkeypatch.setattr(installed_flower, "version", version)
    need_flower()
    assert "flwr" in asked


@pytest.mark.parametrize("module", ["superlink", "warm", "supernode", "server_apps", "command"])
def test_with_another_version_no_process_starts(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\nreal = m.version\n"
        "m.version = lambda name: '1.99.0' if name == 'flwr' else real(name)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(SOURCE.parent)])
    command = [sys.executable, "-m", f"rebafl.federation.{module}", str(tmp_path)]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("A federation needs Flower 1.41, and flwr 1.99.0 is installed; ")
    assert len(ended.stderr.splitlines()) == 1


def test_a_uvicorn_that_runs_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr("uvicorn.run", lambda application: None)
    with pytest.raises(UserError, match=r"uvicorn .* cannot be guarded; install"):
        flower_changes.start_superlink(lambda port: None, b"secret", lambda key: True)
    monkeypatch.setattr("uvicorn.Config", lambda application: None)
    with pytest.raises(UserError, match=r"uvicorn .* cannot be guarded; install"):
        flower_changes.start_supernode(b"secret")


def private_parts(text):
    """What a module's source uses of Flower's and uvicorn's private parts."""
    used = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            used += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            used += [node.module] if node.module != "flwr" else [f"flwr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("flwr."):
            used.append(node.value)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            own = isinstance(node.value, ast.Name) and node.value.id in OWNERS
            used += [] if own else [f"flwr: {node.attr}"]
    return [name for name in used if name.split(".")[0].split(":")[0] in ("flwr", "uvicorn") and name not in PUBLIC]


@pytest.mark.parametrize(
    "text",
    [
        "from flwr.supercore.run import Run",
        "import flwr.proto",
        "from flwr import common",
        "def later():\n    import uvicorn",
        "import_module('flwr.supernode.cli')",
        "grid._runtime_client.PullObject",
        "self.grid._run",
    ],
)
def test_private_parts_are_noticed(text):
    assert len(private_parts(text)) == 1


def test_no_other_module_uses_private_parts_of_flower_or_uvicorn():
    paths = [*(SOURCE / "federation").rglob("*.py"), SOURCE / "cli" / "federation.py"]
    used = {path.relative_to(SOURCE).as_posix(): private_parts(path.read_text()) for path in paths}
    changes = [name for name in used if name.startswith("federation/flower_changes/")]
    assert [name for name in changes if used.pop(name)]
    assert {name: parts for name, parts in used.items() if parts} == {}


def test_no_module_outside_the_federation_names_flower():
    own = [path for path in SOURCE.rglob("*.py") if not {"federation", "peers"} & set(path.parts)]
    assert [path.name for path in own if "import flwr" in path.read_text() or "from flwr" in path.read_text()] == []
