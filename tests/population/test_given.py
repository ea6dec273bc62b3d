"""Partitions that are given are what was given, or are refused with what is wrong."""

import json

import numpy as np
import pytest

from rebafl.base.errors import UserError
from rebafl.population.given import File, Listed
from rebafl.runs.settings import make_settings

LABELS = np.repeat(np.arange(10), 60)


def test_file_gives_back_what_was_saved(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps([[0, 5], [1]]))
    split = File(clients=2, path=str(tmp_path / "p.json")).split(LABELS, 10, 0)
    assert [split.indices(client).tolist() for client in range(2)] == [[0, 5], [1]]


def test_the_clients_of_a_file_are_counted_unless_their_number_is_given(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps([[0, 5], [1], [2]]))
    counted, given = (make_settings({"partition": {"kind": "file", "path": str(tmp_path / "p.json"), **words}})
                      for words in ({}, {"clients": 3}))  # fmt: skip
    assert counted.partition.clients == 3
    assert (counted, counted.digest) == (given, given.digest), "a run is the same, whoever counted"
    (tmp_path / "p.json").write_text(json.dumps([[0, 5]]))
    with pytest.raises(UserError, match=r"holds 1 clients, partition\.clients says 3"):
        make_settings(counted.plain()).partition.split(LABELS, 10, 0)


def test_listed_clients_take_the_next_samples_of_their_classes_in_the_order_of_the_data():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0])
    listed = Listed(classes=((1, 0), (0,), (0, 1)), samples=3)
    assert listed.clients == 3
    split = listed.split(labels, 2, seed=5)
    # client 0: one of class 1, two of class 0; client 1: three of class 0; client 2: of class 0 none are left
    assert [split.indices(client).tolist() for client in range(3)] == [[0, 1, 2], [4, 6, 8], [0, 3, 5]]


@pytest.mark.parametrize(
    ("classes", "samples", "clients", "problem"),
    [
        (((0, 1), (1, 1)), 4, 0, "client 1 must hold different classes between 0 and 9"),
        (((0, 10),), 4, 0, "client 0 must hold different classes between 0 and 9"),
        (((0, 1),), 1, 0, "no more than its 1 samples"),
        (((0,),), 61, 0, "61 samples of class 0 are more than the 60"),
        (((0,), (1,)), 4, 3, r"lists 2 clients, partition\.clients says 3"),
    ],
)
def test_listed_refuses_what_cannot_be(classes, samples, clients, problem):
    with pytest.raises(UserError, match=problem):
        Listed(classes=classes, samples=samples, clients=clients).split(LABELS, 10, 0)


@pytest.mark.parametrize("text", ["", "{}", "[[0]]", "[[0], [-1]]", "[[0], [600]]", "[[0], []]", "[[0], [1, 1]]",
                                  "[[0], [1.5]]", '[[0], ["1"]]', "[[0], 3]", "[[0], [true]]",
                                  "[[0],[99999999999999999999]]"])  # fmt: skip
def test_file_refuses_nonsense(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError, match=r"partition\.path"):
        File(clients=2, path=str(tmp_path / "p.json")).split(LABELS, 10, 0)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(UserError, match=r"partition\.path: nowhere\.json"):
        File(path="nowhere.json").split(LABELS, 10, 0)
