"""Whatever is lost or changed on the way: the exact sum of the survivors, or an abort with a reason."""

from copy import copy
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebafl.secagg.abort import Abort
from rebafl.secagg.client import pair_purpose, seed_key
from rebafl.secagg.crypto import add_mask, agreed_key, combine
from rebafl.secagg.fixed_point import plain_sum
from rebafl.secagg.messages import MaskedInput, Stage
from support.secagg import STAGES, Paused, is_exact, make_terms, make_vectors, run

CLIENTS = (0, 1, 2, 3)


def losing(lost):
    """A network that loses all to and from some clients, from a stage on; `lost` says who, when and which way."""

    def carry(stage, client, to_server, data):
        if client not in lost:
            return data
        first, upwards = lost[client]
        place = STAGES.index(stage) - STAGES.index(first)
        return None if place > 0 or (place == 0 and to_server == upwards) else data

    return carry


def expected_survivors(lost):
    """None if too few are left to the end."""
    left = [client for client in CLIENTS if client not in lost]
    masked = [c for c in CLIENTS if c not in lost or STAGES.index(lost[c][0]) > STAGES.index(Stage.MASK)]
    return tuple(masked) if len(left) >= 3 else None


def check_sum(lost):
    terms = make_terms(CLIENTS, threshold=3)
    vectors = make_vectors(terms)
    if expected_survivors(lost) is None:
        with pytest.raises(Abort, match="at least 3 are needed"):
            run(terms, vectors, carry=losing(lost))
    else:
        outcome = run(terms, vectors, carry=losing(lost))
        assert outcome.survivors == expected_survivors(lost)
        assert is_exact(outcome, vectors)
        assert outcome.refused == {}


def test_the_exact_sum_without_dropouts():
    check_sum({})


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("client", CLIENTS)
def test_one_client_lost_at_each_stage(client, stage, upwards):
    check_sum({client: (stage, upwards)})


def test_two_clients_lost_at_all_pairs_of_stages_are_too_many():
    for (one, other), stages in product(combinations(CLIENTS, 2), product(STAGES, repeat=2)):
        check_sum({one: (stages[0], True), other: (stages[1], True)})


def test_each_subset_of_five_lost_at_each_stage():
    clients = (2, 3, 5, 7, 11)
    terms = make_terms(clients, threshold=3)
    vectors = make_vectors(terms)
    for count, stage in product(range(6), STAGES):
        for gone in combinations(clients, count):
            carry = losing(dict.fromkeys(gone, (stage, True)))
            if count > 2:
                with pytest.raises(Abort, match="at least 3 are needed"):
                    run(terms, vectors, carry=carry)
                continue
            outcome = run(terms, vectors, carry=carry)
            assert is_exact(outcome, vectors)
            kept_input = STAGES.index(stage) > STAGES.index(Stage.MASK)
            assert outcome.survivors == (clients if kept_input else tuple(c for c in clients if c not in gone))


@given(st.dictionaries(st.integers(0, 6), st.tuples(st.sampled_from(STAGES), st.booleans()), max_size=4))
@settings(max_examples=60, deadline=None)
def test_seven_clients_lost_anywhere(lost):
    terms = make_terms(range(7), threshold=4)
    vectors = make_vectors(terms)
    try:
        outcome = run(terms, vectors, carry=losing(lost))
    except Abort:
        assert len(lost) == 4
    else:
        assert len(lost) <= 3
        assert is_exact(outcome, vectors)


def lose_some(rng, stage, client, to_server, data):
    return data if rng.random() > 0.04 else None


def test_messages_that_are_lost_in_no_order_at_all():
    """A client that is lost at one stage and heard again later is not taken in again."""
    terms = make_terms(range(6), threshold=4)
    vectors = make_vectors(terms)
    sums = 0
    for seed in range(40):
        try:
            outcome = run(terms, vectors, carry=partial(lose_some, np.random.default_rng(seed)))
        except Abort as reason:
            assert "at least 4 are needed" in str(reason)
        else:
            sums += 1
            assert is_exact(outcome, vectors)
    assert 0 < sums < 40


def flipped(data, place, bit):
    return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


@pytest.mark.parametrize("stage", STAGES)
def test_no_bit_of_what_a_client_says_can_be_flipped(stage):
    paused = Paused(make_terms(CLIENTS, threshold=3), stage)
    data = paused.answer(1)
    for place, bit in product(range(len(data)), range(8)):
        with pytest.raises(Abort):
            paused.server.take(flipped(data, place, 1 << bit))
    assert paused.server.take(data) == 1


@pytest.mark.parametrize("stage", STAGES[1:])
def test_no_byte_of_what_a_client_is_told_can_be_changed(stage):
    paused = Paused(make_terms(CLIENTS, threshold=3), stage)
    client, data = paused.clients[1], paused.sent[1]
    for place in range(len(data)):
        paused.clients[1] = copy(client)
        paused.clients[1]._shares = dict(client._shares)
        with pytest.raises(Abort):
            paused.answer(1, flipped(data, place, 1 << place % 8))
        assert paused.clients[1].stage is Stage.CLOSED


@pytest.mark.parametrize("to_server", [True, False])
@pytest.mark.parametrize("stage", STAGES)
def test_a_client_whose_message_was_changed_is_lost_and_the_sum_of_the_others_exact(stage, to_server):
    terms = make_terms(CLIENTS, threshold=3)
    vectors = make_vectors(terms)
    for place in (0, 4, 10, 40, 44, -100, -1):
        changed: list[int] = []

        def carry(now, client, up, data, place=place, changed=changed):
            if (now, client, up) != (stage, 1, to_server) or not data:
                return data
            changed.append(client)
            return flipped(data, place % len(data), 16)

        outcome = run(terms, vectors, carry=carry)
        assert is_exact(outcome, vectors)
        assert list(outcome.refused) == changed
        assert (1 in outcome.survivors) == (not changed or STAGES.index(stage) > STAGES.index(Stage.MASK))


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_flipped_bit_in_what_all_are_sent_is_a_clean_abort(stage):
    terms = make_terms(CLIENTS, threshold=3)
    vectors = make_vectors(terms)

    def carry(now, client, up, data):
        return flipped(data, len(data) - 1, 1) if now is stage and not up else data

    with pytest.raises(Abort, match="0 clients"):
        run(terms, vectors, carry=carry)


def test_the_order_of_arrival_does_not_change_the_sum():
    terms = make_terms((9, 4, 0, 7), threshold=3)
    vectors = make_vectors(terms)
    backwards = make_terms((0, 4, 7, 9), threshold=3)
    one, other = run(terms, vectors), run(backwards, vectors)
    assert terms.tag == backwards.tag
    assert np.array_equal(one.total, other.total)
    assert one.survivors == other.survivors == (0, 4, 7, 9)


NUMBERS = 50_000


def masked_inputs(seed=0, zeros=True):
    """What the server sees of each client."""
    terms = make_terms((0, 1, 2), threshold=2, numbers=NUMBERS)
    vectors = make_vectors(terms, seed)
    if zeros:
        vectors = {client: np.zeros_like(vector) for client, vector in vectors.items()}
    seen = {}

    def carry(stage, client, to_server, data):
        if stage is Stage.MASK and to_server:
            seen[client] = np.frombuffer(data[45 : 45 + 8 * NUMBERS], dtype=np.uint8)  # after head and length
        return data

    assert is_exact(run(terms, vectors, carry=carry), vectors)
    return seen


def chi_square(sample):
    counts = np.bincount(sample, minlength=256)
    mean = len(sample) / 256
    return float(((counts - mean) ** 2 / mean).sum())


@pytest.mark.parametrize("zeros", [True, False])
def test_masked_vectors_look_uniform(zeros):
    """Chi-square with 255 degrees of freedom, mean 255, deviation 22.6: beyond 255 ± 6 deviations once in 10^8."""
    for sample in masked_inputs(zeros=zeros).values():
        assert abs(chi_square(sample) - 255) < 136
        for byte in range(8):  # each place of the words by itself: high bytes of small numbers would show
            assert abs(chi_square(sample[byte::8]) - 255) < 136
        lag = (sample[8:].astype(float) - 127.5) * (sample[:-8].astype(float) - 127.5)
        assert abs(lag.mean()) < 6 * lag.std() / np.sqrt(len(lag))


def test_the_uniformity_test_notices_what_is_not_masked():
    terms = make_terms((0, 1, 2), threshold=2, numbers=NUMBERS)
    assert chi_square(make_vectors(terms)[0].view(np.uint8)) > 1e4


def test_two_masked_inputs_of_the_same_vector_differ():
    one, other = masked_inputs(), masked_inputs()
    samples = [*one.values(), *other.values()]
    for a, b in combinations(samples, 2):
        assert abs((a == b).mean() - 1 / 256) < 0.001  # as often alike as by chance


def test_an_input_that_arrives_late_stays_masked():
    """Why there are two masks: the server is given what takes off the pair masks of a client that seemed lost."""
    terms = make_terms((0, 1, 2), threshold=2, numbers=NUMBERS)
    paused = Paused(terms, Stage.MASK)
    answers = {client: paused.answer(client) for client in paused.sent}
    late = MaskedInput.from_bytes(answers[2]).vector.copy()
    for stage in (Stage.MASK, Stage.AGREE, Stage.UNMASK):
        for client in (0, 1):
            paused.server.take(answers[client] if stage is Stage.MASK else paused.answer(client))
        paused.sent = paused.server.close()
    assert np.array_equal(paused.server.total, plain_sum([paused.vectors[0], paused.vectors[1]]))
    shares = {client: said.mask_keys[2] for client, said in paused.server._revealed.items()}
    secret = combine(shares, 2, [0, 1, 2])
    for client in (0, 1):
        key = agreed_key(secret, paused.server._adverts[client].mask_key, terms.tag, pair_purpose(client, 2))
        add_mask(late, key)  # client 2 has subtracted it
    assert abs(chi_square(late.view(np.uint8)) - 255) < 136
    add_mask(late, seed_key(paused.clients[2]._seed, terms.tag), subtract=True)  # which only client 2 knows
    assert np.array_equal(late, paused.vectors[2])
