"""Clients that are saved after each step and restored for the next, as if each step had a process of its own."""

import pytest

from rebafl.secagg.abort import Abort
from rebafl.secagg.client import Client
from rebafl.secagg.local import exchange
from rebafl.secagg.messages import Stage
from rebafl.secagg.server import Server
from support.secagg import STAGES, Paused, is_exact, make_clients, make_terms, make_vectors, signing_key


def again(client: Client) -> Client:
    return Client.restored(client.terms, client.client, signing_key(client.client), client.saved())


@pytest.mark.parametrize("lost", [None, ("mask", 1), ("share", 1), ("unmask", 0)])
def test_the_sum_is_the_same(lost):
    terms = make_terms()
    vectors, clients = make_vectors(terms), make_clients(terms)

    def carry(stage, client, to_server, data):
        if not to_server:
            clients[client] = again(clients[client])
        return None if (stage.value, client) == lost else data

    outcome = exchange(Server(terms), clients, vectors, carry)
    assert is_exact(outcome, vectors)
    assert len(outcome.survivors) == (3 if lost in (("mask", 1), ("share", 1)) else 4)


@pytest.mark.parametrize("stage", STAGES)
def test_a_restored_client_does_the_next_step_and_no_other(stage):
    paused = Paused(make_terms(), stage)
    one = again(paused.clients[2])
    assert one.stage is stage
    steps = {
        Stage.ADVERTISE: one.advertise,
        Stage.SHARE: lambda: one.share(b""),
        Stage.MASK: lambda: one.mask(b"", paused.vectors[2]),
        Stage.AGREE: lambda: one.agree(b""),
        Stage.UNMASK: lambda: one.unmask(b""),
    }
    earlier = STAGES[STAGES.index(stage) - 1]
    with pytest.raises(Abort, match=f"asked to {earlier.value} when its next step was: {stage.value}"):
        steps[earlier]()
    assert one.stage is Stage.CLOSED


def test_a_client_that_is_done_has_nothing_to_save():
    paused = Paused(make_terms(), Stage.UNMASK)
    client = paused.clients[0]
    seed = client._seed.hex()
    assert seed in client.saved().decode()
    paused.answer(0)
    assert seed not in client.saved().decode()
    assert again(client).stage is Stage.DONE
