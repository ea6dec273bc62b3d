"""A node's secrets between two messages: read once, by one process, and gone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rebafl.federation.app.node.sessions import Session, Sessions

ONE, OTHER = "a" * 64, "b" * 64
SESSION = Session({"clients": [0, 1]}, b'{"stage": "share"}', "c" * 64, np.arange(5, dtype="<u8"))


@pytest.fixture
def sessions(tmp_path) -> Sessions:
    made = Sessions(tmp_path, "1" * 32, 3)
    made.begin()
    return made


def files(sessions):
    return sorted(path.name for path in sessions.folder.iterdir())


def test_what_was_put_is_taken_once(sessions):
    sessions.put(ONE, SESSION)
    taken = sessions.take(ONE)
    assert (taken.terms, taken.secrets, taken.summed) == (SESSION.terms, SESSION.secrets, SESSION.summed)
    assert np.array_equal(taken.vector, SESSION.vector)
    assert sessions.take(ONE) is None
    assert files(sessions) == []


def test_only_one_of_many_gets_it(sessions):
    for _ in range(20):
        sessions.put(ONE, SESSION)
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda _: sessions.take(ONE), range(8)))
        assert sum(one is not None for one in taken) == 1


def test_each_round_has_its_own_and_a_new_one_removes_all(sessions):
    sessions.put(ONE, SESSION)
    assert sessions.take(OTHER) is None
    sessions.clear(OTHER)
    assert files(sessions) == [f"session-{ONE}"]
    (sessions.folder / f"session-{OTHER}.taken").write_bytes(b"of a process that was killed")
    sessions.begin()
    assert files(sessions) == []


def test_marks_are_kept_for_all_runs(sessions, tmp_path):
    assert not sessions.is_marked(ONE)
    assert sessions.mark(ONE)
    other = Sessions(tmp_path, "2" * 32, 3)
    other.begin()
    assert other.is_marked(ONE)
    assert not other.mark(ONE)
    assert not other.is_marked(OTHER)


def test_a_mark_is_set_by_one_of_many(sessions):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: sessions.mark(ONE), range(40))) == 1
