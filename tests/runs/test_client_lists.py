"""Lists of clients come back as they were, whatever their length, and long ones take little room."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebafl.base.files import sha256
from rebafl.runs.client_lists import BITS, LONG, packed, unpacked
from rebafl.runs.record import Record
from rebafl.runs.tally import tally
from support.toy import make_toy, run_toy

MANY = 100_000


def there_and_back(clients):
    line = packed({"round": 1, "active": clients, "lost": []})
    return line["active"], unpacked(json.loads(json.dumps(line)))["active"]


@given(st.integers(0, 2**32), st.integers(LONG, 2 * LONG), st.integers(0, 50_000))
def test_any_list_comes_back(seed, count, away):
    clients = sorted(random.Random(seed).sample(range(count + away), count))
    assert there_and_back(clients)[1] == clients


@pytest.mark.parametrize("size", [0, 1, LONG - 1])
def test_ordinary_lists_stay_lists(size):
    clients = list(range(size))
    assert packed({"active": clients, "lost": clients}) == {"active": clients, "lost": clients}


@pytest.mark.parametrize(
    ("clients", "written"),
    [
        (range(MANY), "0-99999"),
        ([*range(5, 2000), 3000, *range(4000, 4002)], "5-1999,3000,4000-4001"),
        (range(0, MANY, 100), None),
        (sorted(random.Random(0).sample(range(MANY), MANY // 2)), None),
    ],
)
def test_long_lists_are_short(clients, written):
    clients = list(clients)
    text, back = there_and_back(clients)
    assert back == clients
    assert written in (text, None)
    assert len(text) <= min(len(json.dumps(clients)), MANY / 6 + 20)


def test_the_first_client_is_the_lowest_bit():
    clients = [0, *range(3, 2003, 2)]
    text, back = there_and_back(clients)
    assert text.startswith(f"{BITS}qa")  # 0xa9: clients 0, 3, 5, 7
    assert back == clients


def test_what_is_in_no_order_stays_as_it_is():
    clients = list(range(LONG))[::-1]
    assert there_and_back(clients) == (clients, clients)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid literal"), ("a", "invalid literal"), ("-1", "invalid literal"), ("1-2-3", "invalid literal"),
        ("5-3", "'5-3' is no range of clients"), ("1,1", "'1' is no range"), ("7,3", "'3' is no range"),
        ("0-99999999999", "is no range"), ("bits:?", "base64"), ("bits:abc", "padding"),
    ],
)  # fmt: skip
def test_strings_that_are_no_list(text, reason):
    with pytest.raises(ValueError, match=reason):
        unpacked({"active": text})


def test_a_run_of_many_clients_is_read_as_ever(tmp_path):
    """Most of 3,000 clients lose their upload; what counts in the end does not depend on how it was written."""
    data = make_toy(each=20)
    settings = {
        "dropout": "lost", "rounds": 2, "participation": {"kind": "fraction", "share": 0.002},
        "partition": {"kind": "pathological", "clients": 3000, "classes": 2, "samples": 4},
    }  # fmt: skip
    record = run_toy(tmp_path / "r", data, algorithm="fedavg", **settings)
    written = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert {type(line["lost"]) for line in written} == {str}
    assert [line["active"] for line in written] == ["0-2999"] * 2
    lines = Record(record.path).rounds()
    assert [line.active for line in lines] == [list(range(3000))] * 2
    assert {len(line.lost) for line in lines} == {2994}
    assert tally(lines).uploads == 12
    run_toy(tmp_path / "r", data, algorithm="fedavg", **settings | {"rounds": 3})
    whole = run_toy(tmp_path / "w", data, algorithm="fedavg", **settings | {"rounds": 3})
    assert (tmp_path / "r" / "config.toml").read_text() == (tmp_path / "w" / "config.toml").read_text()
    resumed = Record(tmp_path / "r").rounds()
    assert [replace(a, seconds=0) for a in resumed] == [replace(b, seconds=0) for b in whole.rounds()]


def test_lines_of_earlier_versions_are_read(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=1)
    line = record.rounds()[0].plain() | {"active": list(range(2000)), "lost": list(range(3, 2000))}
    text = json.dumps(line) + "\n"
    (record.path / "rounds.jsonl").write_text(text)
    record._write_manifest(replace(record._manifest(), bytes=len(text), rounds=sha256(text.encode())))
    assert [each.plain() for each in Record(record.path).rounds()] == [line]
