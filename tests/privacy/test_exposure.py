"""Who is handed whose prototype, on rounds small enough to count by hand."""

import numpy as np
import torch

from rebafl.privacy.exposure import counts_of, exposure, without_own
from support.toy import round_line

TABLE = np.array([[5, 0, 2], [4, 3, 0], [0, 0, 2]])


def test_single_holders_and_subtraction():
    lines = [
        round_line(round=1, active=(0, 1, 2)),
        round_line(round=2, active=(0, 2)),
        round_line(round=3, active=(1,)),
    ]
    found = exposure(lines, TABLE)
    assert found.uploads == 6
    assert found.to_server == 5 + 3 + 2
    assert found.holders == {1: 1 + 1 + 2, 2: 2 + 1}
    seen = {(e.round, e.label, e.client): (e.by, e.to, e.count) for e in found.handed if e.to}
    assert seen == {
        (1, 0, 1): ("subtraction", (0,), 4),  # client 0 is told; client 1 is away in round 2
        (1, 1, 1): ("single holder", (0, 2), 3),
        (1, 2, 0): ("subtraction", (2,), 2),
        (1, 2, 2): ("subtraction", (0,), 2),
        (2, 0, 0): ("single holder", (1,), 5),
    }
    assert found.models == {2: [0, 2], 3: [1]}
    assert found.clients() == {0, 1, 2}


def test_classes_of_too_few_holders_are_not_handed_out():
    lines = [round_line(round=1, active=(0, 1, 2)), round_line(round=2, active=(0, 1, 2))]
    assert all(event.by == "subtraction" for event in exposure(lines, TABLE, least_holders=2).handed)
    assert exposure(lines, TABLE, least_holders=3).handed == []


def test_a_server_that_remembers_hands_out_until_another_mean_takes_the_place():
    """Client 1 alone holds class 1; it uploads in round 1 and again in round 4."""
    lines = [round_line(round=r, active=active) for r, active in enumerate([(0, 1), (0, 2), (2,), (1, 2), (0,)], 1)]
    handed = {memory: exposure(lines, TABLE, memory=memory).handed for memory in (False, True)}
    to = {memory: {e.round: e.to for e in events if e.label == 1} for memory, events in handed.items()}
    assert to == {False: {1: (0, 2), 4: (0,)}, True: {1: (0, 2), 4: (0,)}}
    lines = [round_line(round=r, active=active) for r, active in enumerate([(0, 1), (0,), (2,)], 1)]
    last = [{e.round: e.to for e in exposure(lines, TABLE, memory=m).handed if e.label == 1} for m in (False, True)]
    assert last == [{1: (0,)}, {1: (0, 2)}]


def test_after_a_round_without_update_the_same_is_sent_again():
    lines = [
        round_line(round=1, active=(0, 1)),
        round_line(round=2, active=(0,), updated=False),
        round_line(round=3, active=(2,)),
    ]
    (event,) = (e for e in exposure(lines, TABLE).handed if e.label == 1)
    assert event.to == (0, 2)


def test_what_clients_keep_reaches_nobody():
    lines = [round_line(round=1, active=(0, 1, 2), unshared=(1,)), round_line(round=2, active=(0, 1, 2))]
    found = exposure(lines, TABLE, least_holders=2)
    assert found.to_server == 5 - 1 + 5
    assert not any(event.label == 1 for event in found.handed)


def test_lost_and_refused_uploads_hand_nothing_out():
    lines = [round_line(round=1, active=(0, 1), lost=(0,), refused={1: "late"}), round_line(round=2, active=(2,))]
    assert not any(event.round == 1 for event in exposure(lines, TABLE).handed)


def test_subtraction_is_exact():
    own, other = torch.randn(2, 7, generator=torch.Generator().manual_seed(0)).double()
    mean = (3 * own + 5 * other) / 8
    assert torch.allclose(without_own(mean, 8, own, 3), other)


def test_what_counts_say():
    found = counts_of(np.array([[1, 1, 0], [2, 1, 0], [0, 1, 1], [0, 0, 3]]))
    assert (found.unique_classes, found.unique_counts) == (2, 4)
    assert found.bits == (1 + 1 + 2 + 2) / 4
