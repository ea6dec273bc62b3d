"""What is changed in Flower is in one module, and only for the version that it was written for."""

import ast
import asyncio
import os
import subprocess
import sys

import pytest

from rebafl.base.config import read_toml
from rebafl.base.errors import UserError
from rebafl.federation import flower_changes
from rebafl.federation.flower_changes import FLOWER, MOST_WAITING, guarded, need_flower
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
    monkeypatch.setattr(flower_changes, "version", lambda name: installed)
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

    monkeypatch.setattr(flower_changes, "version", version)
    need_flower()
    assert "flwr" in asked


@pytest.mark.parametrize("module", ["superlink", "warm"])
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
        flower_changes.start_superlink(lambda port: None)


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
    assert used.pop("federation/flower_changes.py")
    assert {name: parts for name, parts in used.items() if parts} == {}


def test_no_module_outside_the_federation_names_flower():
    own = [path for path in SOURCE.rglob("*.py") if not {"federation", "peers"} & set(path.parts)]
    assert [path.name for path in own if "import flwr" in path.read_text() or "from flwr" in path.read_text()] == []


async def answered(request):
    return await request


def asked(path, client, server="10.0.0.1", length=b"0"):
    """The status with which a guarded application answers a request."""
    sent = []

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def keep(message):
        sent.append(message)

    headers = [] if length is None else [(b"content-length", length)]
    scope = {"type": "http", "path": path, "client": (client, 4711), "server": (server, 9092), "headers": headers}
    asyncio.run(answered(guarded(application)(scope, None, keep)))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "path", ["/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/"]
)
def test_other_machines_reach_only_the_fleet_api(path):
    assert asked(path, "10.0.0.7") == 403
    assert asked(path, "no address") == 403
    assert asked(path, "127.0.0.1") == asked(path, "::1") == asked(path, "10.0.0.1") == 200  # this machine
    assert asked("/v1/fleet/activate-node", "10.0.0.7") == 200


@pytest.mark.parametrize("length", [None, b"", b"-1", b"1e3", b"40000000", b"9" * 5000])
def test_a_node_cannot_send_requests_without_end(length):
    assert asked("/v1/fleet/push-object", "10.0.0.7", length=length) == 413
    assert asked("/v1/fleet/push-object", "127.0.0.1", length=length) == 413
    assert asked("/v1/runtime/push-object", "127.0.0.1", length=length) == 200  # the server's own app may


def test_only_so_many_bytes_are_received_at_once():
    """They are in memory before any key is checked. Small requests, and those of this machine, are always heard."""
    size, statuses = 30 * 2**20, []

    async def attack():
        release = asyncio.Event()

        async def application(scope, receive, send):
            await release.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        serve = guarded(application)

        async def ask(client, length):
            async def keep(message):
                if message["type"].endswith("start"):
                    statuses.append((client, length, message["status"]))

            headers = [(b"content-length", b"%d" % length)]
            await serve(
                {"type": "http", "path": "/v1/fleet/push-object", "client": (client, 1), "server": ("10.0.0.1", 9092),
                 "headers": headers}, None, keep,
            )  # fmt: skip

        first = [asyncio.ensure_future(ask("10.0.0.7", size)) for _ in range(5)]
        first += [asyncio.ensure_future(ask(f"10.0.1.{k}", size)) for k in range(30)]
        first += [asyncio.ensure_future(ask(client, n)) for client, n in (("10.0.0.7", 100), ("127.0.0.1", size))]
        await asyncio.sleep(0.01)
        release.set()
        await asyncio.gather(*first)
        refused = [status for status in statuses if status[2] == 503]
        assert [client for client, _, _ in refused].count("10.0.0.7") == 3
        assert len(refused) == 35 - MOST_WAITING // size
        assert {("10.0.0.7", 100, 200), ("127.0.0.1", size, 200)} <= set(statuses)
        statuses.clear()
        await ask("10.0.0.7", size)  # what was answered does not count any more
        assert statuses == [("10.0.0.7", size, 200)]

    asyncio.run(attack())


def test_a_reply_is_announced_in_about_as_many_bytes_as_its_order():
    """A tree of thousands of objects would block the SuperLink's database."""
    sizes = []

    async def application(scope, receive, send):
        sizes.append((scope["path"], dict(scope["headers"])[b"content-length"]))

    async def nothing(message):
        pass

    app = guarded(application)
    for path, size in (
        ("/v1/fleet/push-messages", b"10000"),
        ("/v1/fleet/push-messages", b"30000"),  # before any order: not answered
        ("/v1/runtime/push-messages", b"10000"),
        ("/v1/fleet/push-messages", b"30001"),
        ("/v1/fleet/push-messages", b"40000"),  # nor this
    ):
        scope = {"type": "http", "path": path, "client": ("127.0.0.1", 1), "headers": [(b"content-length", size)]}
        asyncio.run(answered(app(scope, None, nothing)))
    assert [int(size) for _, size in sizes] == [10000, 10000, 30001]
