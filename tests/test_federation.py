"""A federation's keys, processes and commands; with a real SuperLink: who is let in, and who is not."""

import asyncio
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key
from typer.testing import CliRunner

from rebafl.base.errors import UserError
from rebafl.cli.main import app
from rebafl.federation.app.members import read_keys
from rebafl.federation.ops import processes
from rebafl.federation.ops.control import connected
from rebafl.federation.ops.credentials import make_node_key
from rebafl.federation.ops.layout import Plan, create, read_plan
from rebafl.federation.ops.local import LocalFederation, open_or_create
from rebafl.federation.ops.processes import Started, free_ports, wait_until
from rebafl.federation.superlink import guarded

BIN = Path(sys.executable).parent
SMALL = Plan(2, (), "127.0.0.1", 9092, (9093, 9094))


def command(*words):
    """One command, in this process."""
    return CliRunner().invoke(app, ["federation", *words], standalone_mode=False, catch_exceptions=False)


# --- keys, certificates, scripts


def test_private_keys_are_their_owners_alone_and_nothing_is_overwritten(tmp_path):
    create(tmp_path / "fed", SMALL)
    secrets = list((tmp_path / "fed").rglob("*.key"))
    assert {path.parent.name for path in secrets} == {"fed", "server", "node-0", "node-1"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert {stat.S_IMODE((tmp_path / "fed" / name).stat().st_mode) for name in (".", "server", "node-0")} == {0o700}
    before = (tmp_path / "fed" / "ca.key").read_bytes()
    with pytest.raises(UserError, match="not empty"):
        create(tmp_path / "fed", SMALL)
    assert (tmp_path / "fed" / "ca.key").read_bytes() == before


def test_a_machine_gets_its_own_secret_and_no_other(tmp_path):
    create(tmp_path / "fed", SMALL)
    assert [path.name for path in (tmp_path / "fed" / "node-1").glob("*.key")] == ["node.key"]
    assert [path.name for path in (tmp_path / "fed" / "server").glob("*.key")] == ["server.key"]


def test_the_server_certificate_is_for_loopback_and_the_given_hosts(tmp_path):
    create(tmp_path / "fed", Plan(1, ("fl.example.org", "192.0.2.7"), "0.0.0.0", 9092, (9093,)))
    server = x509.load_pem_x509_certificate((tmp_path / "fed/server/server.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((tmp_path / "fed/ca.crt").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) >= {"localhost", "fl.example.org"}
    assert set(map(str, names.get_values_for_type(x509.IPAddress))) == {"127.0.0.1", "::1", "192.0.2.7"}
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_members_are_the_nodes_keys(tmp_path):
    create(tmp_path / "fed", SMALL)
    allowed = read_keys(tmp_path / "fed/server/members.toml")
    for number in range(2):
        private = load_ssh_private_key((tmp_path / f"fed/node-{number}/node.key").read_bytes(), None)
        assert private.public_key() == load_pem_public_key(allowed[number])


def test_everything_listens_on_loopback_unless_told_otherwise(tmp_path):
    command("init", str(tmp_path / "here"), "--nodes", "1")
    command("init", str(tmp_path / "out"), "--nodes", "1", "--host", "fl.example.org")
    assert 'LISTEN:=127.0.0.1"' in (tmp_path / "here/server/environment").read_text().replace("}", '"')
    assert 'LISTEN:=0.0.0.0"' in (tmp_path / "out/server/environment").read_text().replace("}", '"')
    assert "SERVER:=fl.example.org:9092" in (tmp_path / "out/node-0/environment").read_text()
    assert "--host 127.0.0.1" in (tmp_path / "out/node-0/start.sh").read_text()  # a node never listens outside
    assert read_plan(tmp_path / "out").listen == "0.0.0.0"


def test_the_scripts_and_the_examples_can_be_read(tmp_path):
    import yaml

    create(tmp_path / "fed", SMALL)
    for path in [*(tmp_path / "fed").rglob("start.sh"), *(tmp_path / "fed").rglob("environment")]:
        subprocess.run(["/bin/sh", "-n", path], check=True)
    services = yaml.safe_load((tmp_path / "fed/compose.yaml").read_text())["services"]
    assert list(services) == ["server", "node-0", "node-1"]
    assert services["node-1"]["environment"] == {"SERVER": "server:9092"}
    assert "ExecStart=/opt/rebafl/node-1/start.sh" in (tmp_path / "fed/node-1/rebafl-node-1.service").read_text()


# --- processes


def test_only_a_process_that_is_what_was_started_is_touched():
    own = psutil.Process()
    right = Started.now(own.pid, own.cmdline())
    assert right.alive
    for change in ({"began": right.began - 1}, {"command": ("/bin/sh", "start.sh")}, {"boot": "another"}):
        wrong = replace(right, **change)
        assert not wrong.alive
        processes.kill([wrong])  # would end this very test
        processes.stop([wrong])


@pytest.mark.parametrize("end", [processes.kill, processes.stop])
def test_a_process_goes_with_all_it_started(tmp_path, end):
    script = tmp_path / "family.sh"
    script.write_text("sleep 100 & setsid sleep 100 & echo ready; wait\n")
    log = tmp_path / "log"
    started = processes.start(["/bin/sh", str(script)], tmp_path, os.environ, log)
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(), 10)
    family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
    assert len(family) == 3
    end([started])
    assert not started.alive
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


# --- what a user may get wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--dir", "nowhere"], "holds no federation"),
        (["down", "--dir", "fed"], "not up"),
        (["kill-node", "0", "--dir", "fed"], "not up"),
        (["up", "--nodes", "3", "--dir", "fed"], "2 nodes, not 3"),
        (["up", "--nodes", "2", "--dir", "fed", "rouns=3"], "rouns"),
        (["up", "--nodes", "2", "--dir", "fed", "deadline=soon"], "deadline"),
        (["up", "--nodes", "2", "--dir", "fed", "partition.clients=9"], "there are 2 nodes"),
        (["up", "--nodes", "2", "--dir", "fed", "out=x"], "--dir"),
        (["run", "--dir", "fed", "rounds=3"], "No server answers"),
        (["init", "fed"], "not empty"),
        (["init", "new", "--host", "no spaces"], "neither a name nor"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    ports = free_ports(3)
    create(Path("fed"), Plan(2, (), "127.0.0.1", ports[0], tuple(ports[1:])))
    with pytest.raises(UserError, match=said):
        command(*words)
    assert not LocalFederation(Path("fed")).is_up


def test_a_taken_port_is_said(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        create(tmp_path / "fed", Plan(1, (), "127.0.0.1", taken.getsockname()[1], (9093,)))
        with pytest.raises(UserError, match=f"Port {taken.getsockname()[1]} .* is taken"):
            LocalFederation(tmp_path / "fed").begin({"rounds": 1})
    assert not LocalFederation(tmp_path / "fed").is_up


def test_without_flower_the_commands_are_there_and_say_how_to_get_it(tmp_path):
    absent = "import sys; sys.modules.update(dict.fromkeys(('flwr', 'cryptography', 'httpx', 'uvicorn')))"
    program = [sys.executable, "-c", f"{absent}; from rebafl.cli import main; main()", "federation"]
    for words in (["init", "fed"], ["up", "--nodes", "2"], ["status"]):
        done = subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "install it with: pip install 'rebafl[flower]'" in done.stderr
        assert "Traceback" not in done.stderr


# --- who may talk to the server


def asked(path, client, server="10.0.0.1", length=b"0"):
    """The status with which a guarded application answers a request."""
    sent = []

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def keep(message):
        sent.append(message)

    headers = [] if length is None else [(b"content-length", length)]
    scope = {"type": "http", "path": path, "client": (client, 4711), "server": (server, 9092), "headers": headers}
    asyncio.run(guarded(application)(scope, None, keep))
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
        asyncio.run(app(scope, None, nothing))
    assert [int(size) for _, size in sizes] == [10000, 10000, 30001]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server with three members, started by its script; and the key of a stranger."""
    federation = open_or_create(tmp_path_factory.mktemp("security") / "fed", 3)
    (federation.folder / "stranger").mkdir()
    make_node_key(federation.folder / "stranger", "stranger")
    federation.start("server")
    try:
        assert wait_until(lambda: "keys are registered" in (federation.server / "log").read_text(), 60)
        yield federation
    finally:
        federation.down()


def members(federation):
    return connected(federation.link, read_keys(federation.server / "members.toml"))


def count(federation):
    """How many nodes the SuperLink knows at all."""
    from flwr.proto.control_pb2 import ListNodesRequest

    with federation.link.client() as client:
        return len(client.ListNodes(ListNodesRequest()).nodes_info)


def supernode(federation, key, *options):
    """Start a bare SuperNode; the caller ends it."""
    (port,) = free_ports(1)
    log = federation.folder / f"node-{port}.log"
    words = [BIN / "flower-supernode", "--superlink", f"127.0.0.1:{federation.plan.port}", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--isolation", "process", *(["--auth-supernode-private-key", key] if key else [])]
    tls = [] if "--insecure" in options else ["--root-certificates", federation.folder / "ca.crt"]
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    quiet["FLWR_HOME"] = str(federation.folder / "home")
    with log.open("w") as out:
        return subprocess.Popen([*words, *tls, *options], stdout=out, stderr=out, env=quiet), log


@pytest.mark.slow
def test_a_right_key_is_let_in_and_an_unknown_one_refused(running):
    good, _ = supernode(running, running.folder / "node-0" / "node.key")
    bad, log = supernode(running, running.folder / "stranger" / "node.key")
    keyless, keyless_log = supernode(running, None)
    try:
        assert wait_until(lambda: members(running)[0], 30)
        assert bad.wait(30) != 0
        assert "Failed to initialize the connection" in log.read_text()
        assert keyless.wait(30) != 0
        assert "Failed to initialize the connection" in keyless_log.read_text()
        assert members(running) == {0: True, 1: False, 2: False}
        assert count(running) == 3  # neither stranger was even written down
        assert "No SuperNode found with the given public key" in (running.server / "log").read_text()
    finally:
        for process in (good, bad, keyless):
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.mark.slow
def test_plain_text_is_refused(running):
    import httpx

    url = f"127.0.0.1:{running.plan.port}/v1/fleet/activate-node"
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{url}", content=b"")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):  # nor is another authority believed
        httpx.post(f"https://{url}", content=b"")
    trusted = ssl.create_default_context(cafile=running.folder / "ca.crt")
    assert httpx.post(f"https://{url}", content=b"", verify=trusted).status_code in (400, 401, 415, 422)
    plain, log = supernode(running, None, "--insecure", "--max-retries", "1")
    assert plain.wait(40) != 0
    assert "Failed to initialize the connection" in log.read_text()
    assert count(running) == 3


@pytest.mark.slow
def test_a_request_from_elsewhere_cannot_add_keys_or_submit_runs(running):
    """uvicorn believes what a proxy on this machine says of a client's address: this is a client from elsewhere."""
    import httpx

    trusted = ssl.create_default_context(cafile=running.folder / "ca.crt")
    url = f"https://127.0.0.1:{running.plan.port}"
    with httpx.Client(verify=trusted, base_url=url, headers={"content-type": "application/protobuf"}) as client:
        assert client.post("/v1/control/list-nodes").status_code == 200
        elsewhere = {"x-forwarded-for": "192.0.2.9"}
        for path in ("/v1/control/list-nodes", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"):
            assert client.post(path, headers=elsewhere).status_code == 403
        assert client.post("/v1/fleet/activate-node", headers=elsewhere).status_code == 401


@pytest.mark.slow
def test_a_node_cannot_speak_for_another(running):
    """A right key with another node's number is refused; with its own number it is heard."""
    import httpx
    from flwr.proto.control_pb2 import ListNodesRequest
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    allowed = read_keys(running.server / "members.toml")
    with running.link.client() as control:
        numbers = {bytes(n.public_key): n.node_id for n in control.ListNodes(ListNodesRequest()).nodes_info}
    own, other = numbers[allowed[1]], numbers[allowed[2]]
    private = load_ssh_private_key((running.folder / "node-1" / "node.key").read_bytes(), None)
    interceptors = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, private.public_key()),
    ]
    address, authority = running.link.address, running.link.authority.read_bytes()
    with FleetHttpClient.from_server_address(address, False, authority, interceptors) as client:
        client.ActivateNode(ActivateNodeRequest(public_key=allowed[1], heartbeat_interval=30))
        assert members(running)[1]
        client.PullMessages(PullMessagesRequest(node=Node(node_id=own)))
        for request, call in (
            (PullMessagesRequest(node=Node(node_id=other)), client.PullMessages),
            (DeactivateNodeRequest(node_id=other), client.DeactivateNode),
            (ActivateNodeRequest(public_key=allowed[2], heartbeat_interval=30), client.ActivateNode),
        ):
            with pytest.raises(httpx.HTTPStatusError) as refused:
                call(request)
            assert refused.value.response.status_code == 401
        assert not members(running)[2]
        client.DeactivateNode(DeactivateNodeRequest(node_id=own))
        assert not members(running)[1]


@pytest.mark.slow
def test_a_key_taken_off_the_list_is_refused_after_a_restart(running):
    path = running.server / "members.toml"
    text = path.read_text()
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("2 = ")))
    try:
        running.kill("server")
        (running.server / "log").unlink()
        running.start("server")
        assert wait_until(lambda: "2 node keys are registered" in (running.server / "log").read_text(), 60)
        removed, log = supernode(running, running.folder / "node-2" / "node.key")
        assert removed.wait(30) != 0
        assert "Failed to initialize the connection" in log.read_text()
    finally:
        path.write_text(text)


def test_status_says_what_there_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create(Path("federation"), SMALL)
    result = command("status", "--json")
    found = json.loads(result.stdout)
    assert found["server"] == {"process": "not started here", "answers": False}
    assert found["nodes"]["1"] == {"process": "not started here", "connected": False}
    assert (found["up"], found["rounds"], found["accuracy"]) == (False, 0, None)
