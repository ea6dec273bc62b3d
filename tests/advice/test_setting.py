"""What kind of setting it is, and how far two are apart, by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import rebafl.data
from rebafl.advice.setting import apart, dealt, images_of, observed, setting_of
from rebafl.runs.experiment import load_data
from support.advice import setting, settings


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        ("partition.classes=3", 3),
        ("partition=even partition.classes=2", 2),
        ("partition=clustered", 3),  # the mean of 2, 2, 3, 3, 5
        ("partition=dirichlet partition.alpha=0.1", 20 / 11),  # (1 + 10 / 10) / (1 + 1 / 10)
        ("partition=dirichlet partition.alpha=1e9", 10),
        ("partition=iid", 10),
        ("partition=iid dataset=cifar-100", 100),
        ("partition=listed partition.classes=[[0,1],[1,2,3,4]]", 3),
        ("partition=natural", None),
    ],
)
def test_how_many_classes_a_client_holds(words, classes):
    found = setting_of(settings(*words.split())).classes
    assert found == (classes if classes is None else pytest.approx(classes))


@pytest.mark.parametrize(
    ("words", "share", "held"),
    [
        ("participation.p=0.1", 0.1, 1),
        ("participation.p=[0.5,0.5,0.3,0.3,0.2]", 0.36, 1),
        ("participation=always", 1, 1),
        ("participation=fraction participation.share=0.1", 0.1, 1),
        ("participation=persistent participation.p=0.4 participation.period=7", 0.4, 7),
        ("participation=markov participation.leave=0.3 participation.join=0.03", 1 / 11, 1 / 0.33),
        ("participation=markov participation.leave=0.9 participation.join=0.9", 0.5, 1),  # fewer than one make no sense
        ("participation.p=0.5 delivery=bernoulli delivery.p=0.6", 0.3, 1),
        ("participation.p=0.5 dropout=lost", 0.5, 1),  # both readings give the same curves
    ],
)
def test_how_many_are_there_and_for_how_long(words, share, held):
    found = setting_of(settings(*words.split()))
    assert [found.share, found.held] == pytest.approx([share, held])


def test_a_trace_is_looked_at_only_if_it_may_be(tmp_path):
    """Four clients in eight rounds: two are there for four rounds, then the others."""
    path = tmp_path / "trace.csv"
    path.write_text("client,first,last\n0,1,4\n1,1,4\n2,5,8\n3,5,8\n")
    mine = settings("participation=trace", f"participation.path={path}", "partition.clients=4", "rounds=8")
    assert setting_of(mine).share is None
    found = setting_of(mine, observe=True)
    assert found.share == 0.5
    assert found.held == pytest.approx(2 * 0.5 * 0.5 / (1 / 7))  # all of them change once in seven pairs of rounds


def test_a_trace_that_comes_with_the_package_is_looked_at():
    authors = settings("participation=trace", "participation.path=rebafl:paper/authors-participation.csv")
    found = setting_of(authors)
    assert (found.share, found.drawn) == (0.5, "drawn anew each round")


def test_few_clients_are_not_none(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("client,round\n0,1\n")
    words = ("participation=trace", f"participation.path={path}", "partition.clients=100", "rounds=5")
    assert setting_of(settings(*words), observe=True).there == "0.20% there"  # one of 500


def test_who_holds_what_is_counted_where_only_the_data_tell(tmp_path):
    """One client with one class, one with two of equal size, one with 3 to 1: Σ p² is 1, 1/2 and 5/8."""
    labels = np.load(Path(rebafl.data.__file__).with_name("fashion-mini.npz"))["y_train"]
    of = [np.flatnonzero(labels == c).tolist() for c in range(3)]
    path = tmp_path / "split.json"
    path.write_text(json.dumps([of[0][:5], of[0][5:9] + of[1][:4], of[1][4:10] + of[2][:2]]))
    words = ("dataset=fashion-mini", "partition=file", f"partition.path={path}")
    found = setting_of(settings(*words), observe=True)
    assert found.classes == pytest.approx(3 / (1 + 1 / 2 + 5 / 8), abs=0.005)
    assert (found.clients, found.holds) == (3, "classes dealt as unevenly as 1.4 a client")
    assert setting_of(settings(*words)).classes is None, "only if it may be looked at"


def test_counting_agrees_with_what_the_settings_say():
    for words in ("partition.classes=2", "partition=iid"):
        mine = settings("dataset=fashion-mini", words)
        assert dealt(mine)[0] == pytest.approx(setting_of(mine).classes, rel=0.1)


def test_the_observed_length_is_that_of_the_formula():
    words = ("participation=markov", "participation.leave=0.1", "participation.join=0.1", "partition.clients=500")
    formula = setting_of(settings(*words))
    share, held = observed(settings(*words), 500)
    assert share == pytest.approx(formula.share, abs=0.05)
    assert held == pytest.approx(formula.held, rel=0.1)


def test_what_else_was_set_counts_and_what_belongs_to_a_scale_does_not():
    assert (
        setting_of(settings("rounds=3", "training.batch=7", "partition.samples=9", "algorithm=moon", "seed=4")).other
        == {}
    )
    assert setting_of(settings("dataset=cifar-10")).other == {}, "the paper's own settings of a data set are usual"
    assert setting_of(settings("training.epochs=2", "robust=median")).other == {
        "training.epochs": "2",
        "robust.kind": "median",
    }


def test_ones_own_data_are_counted_by_what_is_in_them(tmp_path):
    """Three classes and 90 images: not ten, of which Dirichlet would deal out more."""
    x, y = np.zeros((90, 8), np.float32), np.arange(90) % 3
    np.savez(tmp_path / "my.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    mine = settings(
        f"dataset={tmp_path / 'my.npz'}", "partition=dirichlet", "partition.alpha=0.5", "partition.clients=9"
    )
    data = load_data(mine, say=lambda text: None)
    assert (setting_of(mine, data=data).total, setting_of(mine).total) == (3, None)
    assert setting_of(mine, data=data).classes == pytest.approx((1 + 3 * 0.5) / 1.5)
    assert (images_of(mine, data), images_of(mine)) == (10, None)


def test_a_small_stand_in_is_the_data_set():
    assert setting_of(settings("dataset=cifar-mini")) == setting_of(settings("dataset=cifar-10"))


def steps(**changed):
    return [steps for steps, _ in apart(setting(), setting(**changed))]


def test_one_step_is_a_factor_of_two_or_another_kind():
    assert steps() == []
    assert steps(clients=40) == steps(clients=10) == steps(held=2.0) == [1.0]
    assert steps(share=0.25) == [1.0]
    assert steps(classes=4.0) == [1.0]
    assert steps(classes=4.0, skew="even") == [2.0]
    assert steps(skew="even") == [1.0]
    assert steps(dataset="cifar-10") == [1.0]
    assert steps(clients=40, held=4.0) == [1.0, 2.0]
    assert steps(dataset="cifar-100", total=100) == [1.0, pytest.approx(math.log2(10))], "other shares are held"
    assert steps(dataset="mine.npz", total=None) == [1.0], "nobody knows"
    assert steps(other={"training.epochs": "1", "training.lr": "0.1"}) == [2.0], "each setting of training counts"
    assert steps(other={"model.kind": "mlp", "model.last": "x"}) == [1.0], "another model is one"
    assert steps(other={"training.epochs": "1", "model.kind": "mlp"}) == [1.0, 1.0]


def test_who_is_away_counts_as_well_as_who_is_there():
    """From half to all of them is a factor of two in those who are there, but the end of dropout."""
    assert steps(share=1.0) == [pytest.approx(math.log2(0.5 / 0.05))]
    assert steps(share=0.9) == [pytest.approx(math.log2(0.5 / 0.1))]


def test_what_cannot_be_told_is_never_near():
    assert steps(classes=None) == steps(share=None) == steps(held=None) == steps(clients=0) == [math.inf]


def test_both_settings_are_said_in_words():
    mine, other = setting(), setting(clients=50, held=5.0, share=0.1, other={"training.epochs": "1"})
    assert [words for _, words in apart(mine, other)] == [
        "50 clients, yours 20",
        "10% there, yours 50% there",
        "the same for about 5 rounds, yours drawn anew each round",
        "training.epochs=1, yours training as usual",
    ]
