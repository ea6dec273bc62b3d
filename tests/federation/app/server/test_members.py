"""Which node is which client."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rebafl import UserError
from rebafl.federation.app.server.members import QUESTIONS, MembersByClaim, MembersByKey, read_members
from support.damage import flips
from support.grid import CLIENTS, FakeGrid, nodes_of, run
from support.toy import lines


def test_every_flipped_bit_of_the_table_of_members_is_noticed(tmp_path):
    file = tmp_path / "members.json"

    def table():
        return MembersByClaim(file, 3, lambda nodes: dict.fromkeys(nodes, -1))

    nodes = [SimpleNamespace(node_id=number, public_key=f"key {number}".encode()) for number in (1, 2)]
    found = table().clients(nodes)
    assert table().clients(nodes) == found
    whole = file.read_bytes()
    for damaged in flips(whole):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"members\.json is damaged"):
            table()
    file.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "sha256"}))  # as it used to be
    assert table().clients(nodes) == found


def test_a_node_that_does_not_say_which_part_it_holds_is_not_asked_for_ever(tmp_path):
    asked = []
    silent = connected(1, b"key")

    def ask(nodes):
        asked.append(nodes)
        return {}

    table = MembersByClaim(tmp_path / "members.json", 4, ask)
    for _ in range(9):
        assert table.clients([silent]) == {}
    assert len(asked) == QUESTIONS


def make_key():
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem, key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


SOME_KEY = make_key()[1]


def connected(node_id: int, public_key: bytes):
    return SimpleNamespace(node_id=node_id, public_key=public_key)


def test_with_a_members_file_a_number_belongs_to_a_key_and_strangers_are_never_asked(tmp_path, config):
    keys = [make_key() for _ in range(3)]
    members = tmp_path / "members.toml"
    members.write_text(f'[clients]\n3 = "{keys[0][1]} node"\n1 = "{keys[1][1]}"\n')
    bound = MembersByKey(members, CLIENTS)
    nodes = [connected(11, keys[0][0]), connected(12, keys[1][0]), connected(13, keys[2][0])]
    assert bound.clients(nodes) == {3: 11, 1: 12}
    assert bound.clients([connected(99, keys[0][0])]) == {3: 99}  # registered anew, the same key

    config["members"] = str(members)
    real_nodes = nodes_of(config)[:3]
    names = {}
    for node, (pem, _) in zip(real_nodes, keys, strict=True):
        names[node.node_id] = node.public_key
        node.public_key = pem

    class Keyed(FakeGrid):
        def _deliver(self, message):
            self.asked.append(
                (message.metadata.dst_node_id, int(message.metadata.group_id), message.metadata.message_type)
            )
            node = next(n for n in self.nodes if n.node_id == message.metadata.dst_node_id)
            self.replies[message.metadata.message_id] = node.answer(message)

    grid = Keyed(real_nodes)
    rows = lines(run(config, grid).path)
    assert [row["active"] for row in rows] == [[1, 3]] * 3  # though their partition-ids are 0 and 1
    assert {node for node, _, _ in grid.asked} == {node.node_id for node in real_nodes[:2]}
    assert {kind for _, _, kind in grid.asked} == {"train"}  # nobody is asked who it is


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "table"),
        ('[clients]\nfour = "x"', "is no client"),
        ('[clients]\n0 = "ssh-nothing AAAA"', "cannot be read"),
        ("[clients]\n0 = 1", "cannot be read"),
    ],
)
def test_a_wrong_members_file_is_one_sentence(tmp_path, text, reason):
    path = tmp_path / "members.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=reason):
        read_members(path, CLIENTS)


def test_the_members_are_those_that_the_file_names_now(tmp_path, caplog):
    """A node is added, gets another key, is removed; a file that cannot be read changes nothing."""
    keys = [make_key() for _ in range(3)]
    nodes = [connected(11 + number, pem) for number, (pem, _) in enumerate(keys)]
    path = tmp_path / "members.toml"

    def write(entries):
        path.write_text("[clients]\n" + "".join(f'{client} = "{keys[key][1]}"\n' for client, key in entries.items()))

    write({0: 0})
    bound = MembersByKey(path, CLIENTS)
    assert bound.clients(nodes) == {0: 11}
    write({0: 0, 1: 1})
    assert bound.clients(nodes) == {0: 11, 1: 12}
    write({0: 0, 1: 2, 4: 1})  # a run of four clients has no place for a fifth
    assert bound.clients(nodes) == {0: 11, 1: 13}
    assert bound.keys[1] == keys[2][0]
    assert "Client 4 has a key, but this run is one of 4 clients: it is not asked." in caplog.text
    path.write_text("[clients")
    assert bound.clients(nodes) == {0: 11, 1: 13}
    assert "the members are those of before" in caplog.text
    write({1: 2})
    assert bound.clients(nodes) == {1: 13}


def test_one_key_cannot_be_two_clients(tmp_path):
    _, line = make_key()
    (tmp_path / "members.toml").write_text(f'[clients]\n0 = "{line}"\n1 = "{line}"\n')
    with pytest.raises(UserError, match="same key"):
        read_members(tmp_path / "members.toml", CLIENTS)


def claims(tmp_path, said):
    return MembersByClaim(tmp_path / "members.json", CLIENTS, lambda nodes: {node: said.get(node) for node in nodes})


def test_a_number_whose_node_is_connected_is_never_given_away(tmp_path):
    said = {1: 2, 2: 2, 3: 7, 4: None}
    first, liar, far, silent = (connected(number, f"key {number}".encode()) for number in (1, 2, 3, 4))
    table = claims(tmp_path, said)
    assert table.clients([first]) == {2: 1}
    assert table.clients([liar, far, silent, first]) == {2: 1}
    assert claims(tmp_path, said).clients([liar, first]) == {2: 1}  # nor after a restart of the server
    assert table.clients([liar]) == {2: 2}  # but once its node is gone, one that restarted may have it


def test_nodes_with_data_of_their_own_get_the_free_numbers(tmp_path):
    said = {1: -1, 2: 0, 3: -1}
    nodes = [connected(number, f"key {number}".encode()) for number in (1, 2, 3)]
    table = claims(tmp_path, said)
    found = table.clients(nodes)
    assert sorted(found) == [0, 1, 2]
    assert sorted(found.values()) == [1, 2, 3]
    assert claims(tmp_path, {}).clients(nodes) == found


def test_nodes_are_asked_once_who_they_are(config):
    grid = FakeGrid(nodes_of(config))
    run(config, grid)
    kinds = [kind for _, _, kind in grid.asked]
    assert kinds.count("query") == CLIENTS
    assert kinds.count("train") == 3 * CLIENTS
