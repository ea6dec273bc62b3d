"""A federation's keys, certificates and scripts."""

import stat
import subprocess

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key

from rebafl.base.errors import UserError
from rebafl.federation.app.member_keys import read_keys
from rebafl.federation.ops.layout import Plan, create
from support.plans import SMALL


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


def test_git_takes_nothing_of_it(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    create(tmp_path / "fed", SMALL)
    status = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""


def test_a_machine_gets_its_own_secret_and_no_other(tmp_path):
    create(tmp_path / "fed", SMALL)
    assert [path.name for path in (tmp_path / "fed" / "node-1").glob("node*.key")] == ["node.key"]
    assert [path.name for path in (tmp_path / "fed" / "server").glob("*.key")] == ["server.key"]
    secrets = [path.read_bytes() for pattern in ("secret", "runtime.key") for path in (tmp_path / "fed").rglob(pattern)]
    assert len(set(secrets)) == len(secrets) == 3 + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "fed").rglob("secret")} == {0o600}


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
    assert all(read_keys(tmp_path / f"fed/node-{number}/members.toml") == allowed for number in range(2))
    assert 'key=\\"$PWD/node.key\\" members=\\"$PWD/members.toml\\"' in (tmp_path / "fed/node-1/start.sh").read_text()
    for number in range(2):
        private = load_ssh_private_key((tmp_path / f"fed/node-{number}/node.key").read_bytes(), None)
        assert private.public_key() == load_pem_public_key(allowed[number])


def test_the_scripts_and_the_examples_can_be_read(tmp_path):
    create(tmp_path / "fed", SMALL)
    for path in [*(tmp_path / "fed").rglob("start.sh"), *(tmp_path / "fed").rglob("environment")]:
        subprocess.run(["/bin/sh", "-n", path], check=True)
    services = yaml.safe_load((tmp_path / "fed/compose.yaml").read_text())["services"]
    assert list(services) == ["server", "node-0", "node-1"]
    assert services["node-1"]["environment"] == {"SERVER": "server:9092"}
    assert "ExecStart=/opt/rebafl/node-1/start.sh" in (tmp_path / "fed/node-1/rebafl-node-1.service").read_text()
