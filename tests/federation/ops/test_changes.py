"""Nodes are added and removed, keys and certificates replaced, in a federation that is not up here."""

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key

from rebafl.base.errors import UserError
from rebafl.federation.app.member_keys import read_keys
from rebafl.federation.ops import credentials
from rebafl.federation.ops.changes import add_node, remove_node, renew, rotate_key
from rebafl.federation.ops.layout import create, machines, read_plan
from rebafl.federation.ops.local import LocalFederation
from support.plans import SMALL


@pytest.fixture
def fed(tmp_path):
    create(tmp_path / "fed", SMALL)
    return LocalFederation(tmp_path / "fed")


def agreed(folder: Path):
    """The members that every machine's folder names; each holds its own key."""
    files = [folder / name / "members.toml" for name in machines(read_plan(folder))]
    members = read_keys(files[0])
    assert all(read_keys(file) == members for file in files)
    for number, public in members.items():
        private = load_ssh_private_key((folder / f"node-{number}" / "node.key").read_bytes(), None)
        assert private.public_key() == load_pem_public_key(public)
    return members


def test_a_node_is_added_with_a_folder_like_the_others(fed):
    before = agreed(fed.folder)
    assert add_node(fed) == (2, False)  # no server answers here
    after = agreed(fed.folder)
    assert after == before | {2: after[2]}
    old, new = (sorted(path.name for path in (fed.folder / name).iterdir()) for name in ("node-1", "node-2"))
    assert [name.replace("node-2", "node-1") for name in new] == old
    assert {stat.S_IMODE((fed.folder / "node-2" / name).stat().st_mode) for name in ("node.key", "secret")} == {0o600}
    plan = read_plan(fed.folder)
    assert (plan.nodes, plan.numbers) == (3, [0, 1, 2])
    assert len({plan.port, *plan.node_ports}) == 4
    assert "node-2:" in (fed.folder / "compose.yaml").read_text()


def test_a_removed_node_is_in_nobodys_list_and_its_number_is_free(fed):
    before = agreed(fed.folder)
    assert not remove_node(fed, 0)
    assert agreed(fed.folder) == {1: before[1]}
    assert read_plan(fed.folder).numbers == [1]
    assert not (fed.folder / "node-0").exists()
    (aside,) = fed.folder.glob("removed-node-0-*")
    assert (aside / "node.key").exists()
    with pytest.raises(UserError, match="There is no node '0'; the nodes are 1"):
        remove_node(fed, 0)
    with pytest.raises(UserError, match="Node 1 is the only one"):
        remove_node(fed, 1)
    with pytest.raises(UserError, match="A new node cannot have number 1; free are 0, 2"):
        add_node(fed, 1)
    with pytest.raises(UserError, match="A new node cannot have number 3"):
        add_node(fed, 3)
    assert add_node(fed, 0)[0] == 0
    assert agreed(fed.folder)[0] != before[0]


def test_a_rotated_key_is_a_new_one(fed):
    before = agreed(fed.folder)
    rotate_key(fed, 1)
    after = agreed(fed.folder)
    assert (after[0], after[1] != before[1]) == (before[0], True)
    assert stat.S_IMODE((fed.folder / "node-1" / "node.key").stat().st_mode) == 0o600
    assert not (fed.folder / "node-1" / "next-key").exists()
    with pytest.raises(UserError, match="There is no node '7'"):
        rotate_key(fed, 7)


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_renewed_certificate_is_for_the_same_hosts_and_believed_by_the_same_nodes(fed):
    server, authority = fed.server / "server.crt", (fed.folder / "ca.crt").read_bytes()
    before, key = certificate(server), (fed.server / "server.key").read_bytes()
    assert renew(fed) == (False, False)  # the authority lasts longer; no server is up here
    after = certificate(server)
    assert after.serial_number != before.serial_number
    assert (fed.server / "server.key").read_bytes() != key
    names = [c.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for c in (before, after)]
    assert names[0] == names[1]
    assert (fed.folder / "ca.crt").read_bytes() == (fed.folder / "node-1" / "ca.crt").read_bytes() == authority
    after.verify_directly_issued_by(certificate(fed.folder / "node-1" / "ca.crt"))


def test_an_authority_that_would_expire_first_is_renewed_with_the_same_key(fed, monkeypatch):
    old = certificate(fed.folder / "ca.crt")
    later = old.not_valid_after_utc - datetime.timedelta(days=365)
    monkeypatch.setattr(credentials, "_now", lambda: later)
    assert renew(fed) == (True, False)
    new = certificate(fed.folder / "ca.crt")
    assert new.not_valid_after_utc > certificate(fed.server / "server.crt").not_valid_after_utc > later
    assert new.public_key() == old.public_key()
    assert {(fed.folder / name / "ca.crt").read_bytes() for name in machines(fed.plan)} == {
        (fed.folder / "ca.crt").read_bytes()
    }
    certificate(fed.server / "server.crt").verify_directly_issued_by(old)  # by nodes that have the old one


def test_without_the_authoritys_key_nothing_is_renewed(fed):
    (fed.folder / "ca.key").unlink()
    before = (fed.server / "server.crt").read_bytes()
    with pytest.raises(UserError, match="only it makes certificates; renew where the keys were made"):
        renew(fed)
    assert (fed.server / "server.crt").read_bytes() == before


def test_a_plan_of_before_is_read(fed):
    text = (fed.folder / "federation.json").read_text()
    (fed.folder / "federation.json").write_text(text.replace(',\n  "removed": []', ""))
    assert "removed" not in (fed.folder / "federation.json").read_text()
    assert read_plan(fed.folder).numbers == [0, 1]
