"""With a real SuperLink: who is let in, and who is not."""

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from rebafl.federation.app.member_keys import read_keys
from rebafl.federation.guard import HEADER, proof
from rebafl.federation.machine_secret import read_secret
from rebafl.federation.ops.changes import add_node, remove_node, renew, rotate_key, shows_certificate
from rebafl.federation.ops.control import connected
from rebafl.federation.ops.credentials import make_node_key
from rebafl.federation.ops.local import open_or_create
from rebafl.federation.ops.processes import free_ports, wait_until

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server with three members, started by its script; and the key of a stranger."""
    federation = open_or_create(tmp_path_factory.mktemp("security") / "fed", 3)
    (federation.folder / "stranger").mkdir()
    make_node_key(federation.folder / "stranger", "stranger")
    federation.start("server")
    try:
        assert wait_until(lambda: "keys are registered" in (federation.server / "log").read_text(), 150)
        yield federation
    finally:
        federation.down()


def members(federation):
    return connected(federation.link, read_keys(federation.server / "members.toml"))


def count(federation):
    """How many nodes the SuperLink knows at all."""
    with federation.link.control() as control:
        return len(control.nodes())


def supernode(federation, key, *options):
    """Start a bare SuperNode; the caller ends it."""
    (port,) = free_ports(1)
    log = federation.folder / f"node-{port}.log"
    words: list[str | Path] = [
        BIN / "flower-supernode",
        "--superlink",
        f"127.0.0.1:{federation.plan.port}",
        "--host",
        "127.0.0.1",
    ]
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
        assert wait_until(lambda: members(running)[0], 150)
        assert bad.wait(150) != 0
        assert "Failed to initialize the connection" in log.read_text()
        assert keyless.wait(150) != 0
        assert "Failed to initialize the connection" in keyless_log.read_text()
        assert members(running) == {0: True, 1: False, 2: False}
        assert count(running) == 3  # neither stranger was even written down
        assert "No SuperNode found with the given public key" in (running.server / "log").read_text()
    finally:
        for process in (good, bad, keyless):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.mark.slow
def test_plain_text_is_refused(running):
    url = f"127.0.0.1:{running.plan.port}/v1/fleet/activate-node"
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{url}", content=b"")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):  # nor is another authority believed
        httpx.post(f"https://{url}", content=b"")
    trusted = ssl.create_default_context(cafile=running.folder / "ca.crt")
    assert httpx.post(f"https://{url}", content=b"", verify=trusted).status_code in (400, 401, 415, 422)
    plain, log = supernode(running, None, "--insecure", "--max-retries", "1")
    assert plain.wait(150) != 0
    assert "Failed to initialize the connection" in log.read_text()
    assert count(running) == 3


@pytest.mark.slow
def test_a_request_from_elsewhere_cannot_add_keys_or_submit_runs(running):
    """Nor can one from here that has no secret; what a proxy says of addresses neither opens nor closes anything."""
    trusted = ssl.create_default_context(cafile=running.folder / "ca.crt")
    url = f"https://127.0.0.1:{running.plan.port}"
    secret = {HEADER: proof(read_secret(running.server))}
    with httpx.Client(verify=trusted, base_url=url, headers={"content-type": "application/protobuf"}) as client:
        for address in ("127.0.0.1", "192.0.2.9", "::1"):
            forwarded = {"x-forwarded-for": address, "x-real-ip": address, "x-forwarded-proto": "https"}
            for path in ("/v1/control/list-nodes", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"):
                assert client.post(path, headers=forwarded).status_code == 401
            assert client.post("/v1/control/list-nodes", headers={**forwarded, **secret}).status_code == 200
            assert client.post("/v1/fleet/activate-node", headers=forwarded).status_code == 401
        unsigned = client.post("/v1/runtime/acquire-task", headers=secret)  # Flower's own check, behind the guard
        assert (unsigned.status_code, "Authentication failed" in unsigned.text) == (401, True)


@pytest.mark.slow
def test_a_node_cannot_speak_for_another(running):
    """A right key with another node's number is refused; with its own number it is heard."""
    allowed = read_keys(running.server / "members.toml")
    with running.link.control() as control:
        numbers = {bytes(n.public_key): n.node_id for n in control.nodes()}
    own, other = numbers[allowed[1]], numbers[allowed[2]]
    private = load_ssh_private_key((running.folder / "node-1" / "node.key").read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    interceptors: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, private.public_key()),
    ]
    address, authority = running.link.address, (running.folder / "ca.crt").read_bytes()
    with FleetHttpClient.from_server_address(address, False, authority, interceptors) as client:
        client.ActivateNode(ActivateNodeRequest(public_key=allowed[1], heartbeat_interval=30))
        assert members(running)[1]
        client.PullMessages(PullMessagesRequest(node=Node(node_id=own)))
        for request, call in (
            (PullMessagesRequest(node=Node(node_id=other)), client.PullMessages),
            (DeactivateNodeRequest(node_id=other), client.DeactivateNode),
            (ActivateNodeRequest(public_key=allowed[2], heartbeat_interval=30), client.ActivateNode),
        ):
            with pytest.raises(httpx.HTTPStatusError, match="401 Unauthorized"):
                call(request)
        assert not members(running)[2]
        client.DeactivateNode(DeactivateNodeRequest(node_id=own))
        assert not members(running)[1]


def refused(federation, key):
    """Is a node with this key kept out?"""
    private = load_ssh_private_key(key, None)
    assert isinstance(private, EllipticCurvePrivateKey)
    public = private.public_key()
    interceptors: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, public),
    ]
    address, authority = federation.link.address, (federation.folder / "ca.crt").read_bytes()
    with FleetHttpClient.from_server_address(address, False, authority, interceptors) as client:
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        try:
            client.ActivateNode(ActivateNodeRequest(public_key=pem, heartbeat_interval=30))
        except httpx.HTTPStatusError:
            return True
    return False


@pytest.mark.slow
def test_nodes_keys_and_certificates_are_replaced_while_the_server_runs(running):
    """The last test of this file: it changes the members."""
    link = running.started()["server"].process()
    assert link is not None
    before = link.children()
    assert add_node(running) == (3, True)
    assert wait_until(lambda: members(running)[3], 200)  # it was started, too
    key = running.folder / "node-3" / "node.key"
    first = key.read_bytes()
    assert rotate_key(running, 3)
    second = key.read_bytes()
    assert refused(running, first)
    assert wait_until(lambda: members(running)[3], 200)  # the node has noticed by itself
    assert renew(running) == (False, True)
    assert shows_certificate(running)
    assert members(running)[3]
    assert remove_node(running, 3)
    assert refused(running, second)
    assert "node-3" not in running.started()
    assert add_node(running, 3) == (3, True)
    assert refused(running, second)  # the number is there again, the key is not
    assert running.started()["server"].process() == link
    assert link.children() == before  # nothing of the server was restarted
