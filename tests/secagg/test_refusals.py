"""What clients and the server refuse, each with its reason; a client that refused says nothing more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from rebafl.secagg.abort import Abort
from rebafl.secagg.client import Client
from rebafl.secagg.messages import (
    EVERYONE,
    Agreement,
    Delivery,
    MaskedInput,
    RevealedShares,
    Roster,
    SealedShares,
    Stage,
    Survivors,
    UnmaskRequest,
)
from rebafl.secagg.server import Server
from support.secagg import Paused, make_terms, make_vectors, pem, signing_key

TERMS = make_terms((0, 1, 2, 3), threshold=3)


def check_refused(paused, message, reason, client=0):
    """This client does not answer; and then it answers nothing any more, not even what is right."""
    with pytest.raises(Abort, match=reason):
        paused.answer(client, message.to_bytes())
    assert paused.clients[client].stage is Stage.CLOSED
    with pytest.raises(Abort, match="closed"):
        paused.answer(client)
    assert paused.clients[client]._shares == {}
    assert paused.clients[client]._mask_secret == b""


def changed_roster(change):
    paused = Paused(TERMS, Stage.SHARE)
    roster = Roster.from_bytes(paused.sent[0])
    adverts = dict(roster.adverts)
    change(adverts)
    return paused, replace(roster, adverts=adverts)


def forged(advert, key, **other):
    return replace(advert, **other).signed_by(signing_key(key))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: a.update({1: replace(a[1], signature=bytes(96))}), "not signed by client 1"),
        (lambda a: a.update({1: forged(a[1], key=2)}), "not signed by client 1"),
        (lambda a: a.update({1: replace(a[1], mask_key=a[1].seal_key)}), "not signed by client 1"),
        (lambda a: a.update({1: forged(a[1], 1, mask_key=a[2].mask_key)}), "twice"),
        (lambda a: a.update({1: forged(a[1], 1, seal_key=a[1].mask_key)}), "twice"),
        (lambda a: a.update({1: forged(a[1], 1, seal_key=a[0].seal_key)}), "twice"),
        (lambda a: a.update({1: forged(a[1], 1, seal_key=bytes(32))}), "gives every secret away"),
        (lambda a: a.update({1: forged(a[1], 1, tag=bytes(32))}), "another round"),
        (lambda a: a.update({9: forged(a[1], 9, client=9)}), "not signed by client 9"),
        (lambda a: a.pop(0), "own keys"),
        (lambda a: a.update({0: forged(a[0], 0, mask_key=bytes(32))}), "own keys"),
        (lambda a: (a.pop(1), a.pop(2)), "2 clients advertised keys; at least 3"),
        (lambda a: a.update({1: a[2]}), "under another client"),
    ],
)
def test_rosters_that_a_client_refuses(change, reason):
    paused, roster = changed_roster(change)
    check_refused(paused, roster, reason)


def test_deliveries_that_a_client_refuses():
    for change, reason in [
        (lambda sealed: sealed.update({1: sealed[2]}), "sealed shares were changed"),
        (lambda sealed: sealed.update({7: sealed[2]}), "for or from another client"),
        (lambda sealed: sealed.update({0: sealed[2]}), "for or from another client"),
        (lambda sealed: (sealed.pop(1), sealed.pop(2)), "2 clients shared their secrets; at least 3"),
    ]:
        paused = Paused(TERMS, Stage.MASK)
        delivery = Delivery.from_bytes(paused.sent[0])
        sealed = dict(delivery.sealed)
        change(sealed)
        check_refused(paused, replace(delivery, sealed=sealed), reason)
    paused = Paused(TERMS, Stage.MASK)
    check_refused(paused, Delivery.from_bytes(paused.sent[1]), "for or from another client")


def test_vectors_of_another_shape_or_type_are_not_masked():
    vectors: list[Any] = [np.zeros(4, "<u8"), np.zeros(5), np.zeros((5, 1), "<u8")]
    for vector in vectors:
        paused = Paused(TERMS, Stage.MASK)
        with pytest.raises(Abort, match="not one of 5 words"):
            paused.clients[0].mask(paused.sent[0], vector)


LISTS = [
    ((0, 1, 2, 3), (3,), "client 3 is named both as a survivor and as dropped"),
    ((0, 1), (2, 3), "2 clients survived; at least 3"),
    ((1, 2, 3), (0,), "own input is said not to have arrived"),
    ((0, 1, 2), (), "whose shares were delivered"),
    ((0, 1, 2, 3), (4,), "whose shares were delivered"),
]


@pytest.mark.parametrize(("survivors", "dropped", "reason"), LISTS)
def test_lists_that_a_client_does_not_agree_to(survivors, dropped, reason):
    check_refused(Paused(TERMS, Stage.AGREE), Survivors(TERMS.tag, EVERYONE, survivors, dropped), reason)


def signatures(survivors, dropped, clients):
    unsigned = [Agreement(TERMS.tag, client, b"", survivors, dropped) for client in clients]
    return {each.client: each.signed_by(signing_key(each.client)).signature for each in unsigned}


@pytest.mark.parametrize(
    ("survivors", "dropped", "reason"),
    [*LISTS[:2], ((0, 1, 2), (3,), "not those that this client agreed to"), (*LISTS[3][:2], "not those")],
)
def test_unmask_requests_with_other_lists_are_refused_even_if_signed(survivors, dropped, reason):
    signed = signatures(survivors, dropped, (1, 2, 3))
    check_refused(Paused(TERMS, Stage.UNMASK), UnmaskRequest(TERMS.tag, EVERYONE, survivors, dropped, signed), reason)


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        (signatures(ALL, (), (0, 1)), "2 clients agreed; at least 3"),
        (signatures(ALL, (), (0, 1)) | {2: bytes(96)}, "not signed by client 2"),
        (signatures(ALL, (), (0, 1)) | {2: signatures(ALL, (), (1,))[1]}, "not signed by client 2"),
        (signatures(ALL, (), (0, 1)) | signatures((0, 1, 2), (3,), (2,)), "not signed by client 2"),
        (signatures(ALL, (), (0, 1, 2)) | {8: bytes(96)}, "no survivor"),
    ],
)
def test_unmask_requests_that_too_few_agreed_to_are_refused(signed, reason):
    check_refused(Paused(TERMS, Stage.UNMASK), UnmaskRequest(TERMS.tag, EVERYONE, ALL, (), signed), reason)


def test_a_second_unmask_request_is_refused():
    paused = Paused(TERMS, Stage.UNMASK)
    paused.answer(0)
    assert paused.clients[0].stage is Stage.DONE
    with pytest.raises(Abort, match="asked to unmask when its next step was: done"):
        paused.answer(0)


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.AGREE])
def test_no_step_is_done_twice(stage):
    paused = Paused(TERMS, stage)
    paused.answer(0)
    with pytest.raises(Abort, match=f"asked to {stage.value}"):
        paused.answer(0)
    assert paused.clients[0].stage is Stage.CLOSED


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK])
@pytest.mark.parametrize(
    "other",
    [
        make_terms(ALL, 3, round_id=b"round 2"),
        make_terms(ALL, 4),
        make_terms((0, 1, 2, 3, 4), 3),
        make_terms(ALL, 3, numbers=6),
    ],
    ids=["round", "threshold", "members", "layout"],
)
def test_messages_of_another_round_or_of_other_terms_are_refused(stage, other):
    paused, elsewhere = Paused(TERMS, stage), Paused(other, stage)
    with pytest.raises(Abort, match="another round"):
        paused.answer(0, elsewhere.sent[0])
    with pytest.raises(Abort, match="another round"):
        paused.server.take(elsewhere.answer(1))


def wrong_answers(paused):
    """Answers of client 0 that are well formed and signed, and not right."""
    stage = paused.server.stage
    data = paused.answer(0)
    if stage is Stage.SHARE:
        shares = SealedShares.from_bytes(data)
        sealed = dict(shares.sealed)
        sealed.pop(1)
        return [replace(shares, sealed=sealed)]
    if stage is Stage.MASK:
        return [replace(MaskedInput.from_bytes(data), words=bytes(8 * 4))]
    if stage is Stage.AGREE:
        return [replace(Agreement.from_bytes(data), survivors=(0, 1, 2), dropped=(3,))]
    revealed = RevealedShares.from_bytes(data)
    seeds = dict(revealed.seeds)
    seeds.pop(2)
    return [replace(revealed, seeds=seeds), replace(revealed, mask_keys={2: bytes(32)})]


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK])
def test_answers_that_the_server_refuses_change_nothing(stage):
    paused = Paused(TERMS, stage)
    for message in wrong_answers(paused):
        with pytest.raises(Abort):
            paused.server.take(message.signed_by(signing_key(0)).to_bytes())
    assert paused.server.expected == {0, 1, 2, 3}
    assert not paused.server._sum.any() or stage in (Stage.AGREE, Stage.UNMASK)


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK])
def test_the_server_takes_each_answer_once_and_in_its_stage(stage):
    paused = Paused(TERMS, stage)
    answers = {client: paused.answer(client) for client in paused.sent}
    assert paused.server.take(answers[0]) == 0
    with pytest.raises(Abort, match="has answered already"):
        paused.server.take(answers[0])
    for client in (1, 2):
        paused.server.take(answers[client])
    paused.server.close()
    with pytest.raises(Abort):
        paused.server.take(answers[3])


def test_wrong_shares_are_noticed_before_a_sum_is_given_out():
    """A client that lies about shares makes the round fail; the sum would be noise."""
    for what, match in (("seeds", "seed are wrong"), ("mask_keys", "mask key are wrong")):
        paused = Paused(TERMS, Stage.MASK)
        for client in (0, 1, 2):
            paused.server.take(paused.answer(client))
        paused.sent = paused.server.close()
        for client in (0, 1, 2):
            paused.server.take(paused.answer(client))
        paused.sent = paused.server.close()
        for client in (0, 1, 2):
            revealed = RevealedShares.from_bytes(paused.answer(client))
            if client == 1:
                lies: Any = {other: bytes(32) for other in getattr(revealed, what)}
                revealed = replace(revealed, **{what: lies}).signed_by(signing_key(1))
            paused.server.take(revealed.to_bytes())
        with pytest.raises(Abort, match=match):
            paused.server.close()
        with pytest.raises(Abort, match="no sum"):
            _ = paused.server.total
        with pytest.raises(Abort, match="closed"):
            paused.server.close()


def test_there_is_no_sum_before_the_end():
    server = Server(TERMS)
    with pytest.raises(Abort, match="no sum"):
        _ = server.total
    with pytest.raises(Abort, match="0 clients advertised keys; at least 3"):
        server.close()


def test_impossible_terms_are_refused():
    impossible: list[tuple[dict[str, Any], str]] = [
        ({"threshold": 2}, "threshold of 2"),
        ({"threshold": 5}, "threshold of 5"),
        ({"round_id": b""}, "round id"),
        ({"round_id": bytes(65)}, "round id"),
        ({"keys": {0: pem(0)}}, "1 clients"),
        ({"keys": {n: pem(n) for n in range(21)}}, "21 clients"),
        ({"keys": {0: pem(0), 1: pem(1), 2: pem(0)}, "threshold": 2}, "same long-term key"),
        ({"keys": {0: pem(0), 1: pem(1), -1: pem(2)}, "threshold": 2}, "out of range"),
        ({"keys": {0: pem(0), 1: b"nonsense", 2: pem(2)}, "threshold": 2}, "cannot be read"),
    ]
    for change, reason in impossible:
        with pytest.raises(Abort, match=reason):
            replace(TERMS, **change)


def test_a_client_takes_part_only_under_its_own_key():
    for client, key in ((0, signing_key(1)), (9, signing_key(9)), (0, ec.generate_private_key(ec.SECP384R1()))):
        with pytest.raises(Abort, match="do not name client"):
            Client(TERMS, client, key)


def test_a_client_can_be_made_from_what_federation_init_writes(tmp_path):
    from rebafl.federation.app.member_keys import MEMBERS, read_keys
    from rebafl.federation.ops.layout import Plan, create
    from rebafl.secagg.crypto import read_signing_key
    from rebafl.secagg.local import exchange
    from rebafl.secagg.terms import Terms
    from support.secagg import is_exact

    create(tmp_path / "fed", Plan(3, (), "127.0.0.1", 9092, (9094, 9095, 9096)))
    terms = Terms(b"round 1", read_keys(tmp_path / "fed" / "server" / MEMBERS), 2, TERMS.layout)
    clients = {
        number: Client(terms, number, read_signing_key((tmp_path / "fed" / f"node-{number}" / "node.key").read_bytes()))
        for number in range(3)
    }
    vectors = make_vectors(terms)
    assert is_exact(exchange(Server(terms), clients, vectors), vectors)
    for data in (b"nonsense", (tmp_path / "fed" / "ca.key").read_bytes()):
        with pytest.raises(Abort, match="cannot be read"):
            read_signing_key(data)
