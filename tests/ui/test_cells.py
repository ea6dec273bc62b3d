"""Each cell of the map says what the line of its round says."""

import numpy as np

from rebafl.ui.cells import (
    ANSWERED,
    AWAY,
    LATE,
    LOST,
    NOT_CHOSEN,
    REFUSED,
    SPENT,
    STATES,
    binned,
    cells_of,
    column,
    idle_state,
    presence,
)
from support.toy import round_line
from support.views import drawn_lines


def test_a_federations_round_by_hand():
    line = round_line(
        active=[0, 1, 2, 3], lost=[1, 2], late=[1], missing={1: "slow", 2: "gone"}, refused={3: "NaN"},
        unreached=[4], disconnected=[4, 5], spent=[6],
    )  # fmt: skip
    states = column(line, 8, NOT_CHOSEN).tolist()
    assert states == [ANSWERED, LATE, LOST, REFUSED, AWAY, AWAY, SPENT, NOT_CHOSEN]
    assert line.chosen == [0, 1, 2, 3, 4]
    assert line.answered == {0, 3}


def test_what_taking_no_part_means():
    assert idle_state({"participation": {"kind": "bernoulli"}}, federated=False) == AWAY
    assert idle_state({"participation": {"kind": "fraction"}}, federated=False) == NOT_CHOSEN
    assert idle_state({"participation": {"kind": "bernoulli"}}, federated=True) == NOT_CHOSEN


def test_every_state_has_a_name_and_a_meaning():
    assert len(STATES) == 7
    assert STATES[LATE][0] == "late"
    assert len({name for name, _ in STATES}) == 7


def test_clients_that_do_not_exist_are_left_out():
    assert column(round_line(active=[0, 9]), 2, AWAY).tolist() == [ANSWERED, AWAY]


def test_presence_is_the_share_of_a_classes_data_that_answered():
    cells = np.array([[ANSWERED, AWAY, ANSWERED], [AWAY, REFUSED, LATE]], dtype=np.uint8)
    counts = np.array([[3, 0, 0], [1, 5, 0], [0, 5, 0]])
    assert presence(cells, counts) == [[0.75, 0.5, None], [0.0, 0.0, None]]


def test_bins_keep_the_share_and_the_worst_of_their_cells():
    cells = np.full((4, 4), AWAY, dtype=np.uint8)
    cells[:2, :2] = ANSWERED
    cells[0, 3], cells[1, 3] = LATE, REFUSED
    share, worst = binned(cells, [0, 1, 2, 3], rows=2, columns=2)
    assert share.tolist() == [[255, 0], [0, 0]]
    assert worst.tolist() == [[0, REFUSED], [0, 0]]
    turned, _ = binned(cells, [3, 2, 1, 0], rows=2, columns=2)
    assert turned.tolist() == [[0, 255], [0, 0]], "rows are clients in the given order"


def test_bins_lose_no_cell():
    lines = drawn_lines(37, 53)
    cells = cells_of(lines, 37, AWAY)
    share, worst = binned(cells, list(range(37)), rows=7, columns=9)
    assert share.shape == worst.shape == (9, 7)
    assert abs(share.mean() / 255 - (cells == ANSWERED).mean()) < 0.02
    assert worst.max() == cells.max()
