"""Words become typed settings, or one clear sentence."""

import re
import string
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from rebafl.base.config import build, merge, parameters, parse_assignments, plain, read_toml, write_toml
from rebafl.base.errors import UserError
from rebafl.runs.settings import differences, make_settings


@parameters
class Example:
    count: Annotated[int, Field(ge=1)] = 3
    rate: float = 0.5
    many: tuple[int, ...] = (1, 2)


def test_plain_values_come_back_typed():
    made = build(Example, {"count": 7, "rate": 1, "many": [4]})
    assert (made.count, made.rate, made.many) == (7, 1.0, (4,))
    assert plain(made) == {"count": 7, "rate": 1.0, "many": [4]}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"cuont": 1}, r"part\.cuont.*did you mean 'count'"),
        ({"count": 0}, r"part\.count = 0: .*greater than or equal to 1"),
        ({"count": True}, r"part\.count = True"),
        ({"count": "3"}, r"part\.count = '3'"),
        ({"rate": float("nan")}, r"part\.rate = nan"),
        ({"many": [1, "x"]}, r"part\.many"),
    ],
)
def test_wrong_values_are_named(values, reason):
    with pytest.raises(UserError, match=reason) as error:
        build(Example, values, "part")
    assert "\n" not in str(error.value)


def test_assignments_in_either_order():
    wanted = {"algorithm": {"kind": "rebafl", "mu": 0.1}, "dataset": "fashion-mnist", "p": [0.5, 1], "flag": True}
    words = ["dataset=fashion-mnist", "p=[0.5, 1]", "flag=true"]
    assert parse_assignments(["algorithm=rebafl", "algorithm.mu=0.1", *words]) == wanted
    assert parse_assignments(["algorithm.mu=0.1", "algorithm=rebafl", *words]) == wanted


@pytest.mark.parametrize("word", ["rounds", "=5", "a..b=1", ".a=1", ""])
def test_what_is_no_assignment(word):
    with pytest.raises(UserError, match="KEY=VALUE"):
        parse_assignments([word])


def test_another_kind_starts_its_section_afresh():
    merged = merge([{"a": {"kind": "x", "p": 1}, "n": 1}, {"a": {"q": 2}}, {"a": "y"}], ["a"])
    assert merged == {"a": {"kind": "y"}, "n": 1}
    assert merge([{"a": {"kind": "x", "p": 1}}, {"a": {"kind": "x", "q": 2}}], ["a"])["a"] == {
        "kind": "x",
        "p": 1,
        "q": 2,
    }


def test_defaults_are_the_papers():
    settings: Any = make_settings({})  # of the kinds that are the defaults
    assert (settings.rounds, settings.partition.clients, settings.partition.classes) == (200, 20, 2)
    assert (settings.partition.samples, settings.participation.p) == (1000, 0.5)
    training = settings.training
    assert (training.epochs, training.batch, training.lr, training.weight_decay) == (5, 50, 0.01, 5e-4)
    assert (settings.algorithm.eps, settings.algorithm.mu, settings.algorithm.lam) == (0.01, 0.1, 1.0)
    cifar = make_settings({"dataset": "cifar-10"})
    assert (cifar.training.lr, cifar.training.transform, cifar.model.kind) == (0.02, "crop-flip", "cifar-cnn")


def test_stored_settings_are_complete_and_make_the_same_again(tmp_path):
    settings = make_settings({"dataset": "cifar-10", "participation": "markov", "algorithm": {"eps": [0.1, 0.2]}})
    (tmp_path / "c.toml").write_text(write_toml(settings.plain()))
    assert make_settings(read_toml(tmp_path / "c.toml")) == settings
    assert settings.label != make_settings(settings.plain(), {"seed": 1}).label


def test_differences_name_keys_and_values():
    found = differences(make_settings({}).plain(), make_settings({"seed": 4, "algorithm": "fedavg"}).plain())
    assert any("seed is 0 there, 4 here" in each for each in found)
    assert any("algorithm.kind" in each for each in found)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rouds": 3}, "Unknown key 'rouds'"),
        ({"rounds": 0}, "rounds = 0: should be greater"),
        ({"rounds": 1.5}, "rounds = 1.5: should be a valid integer"),
        ({"seed": -1}, "seed = -1: should be greater"),
        ({"dropout": "maybe"}, "dropout = 'maybe': should be 'away' or 'lost'"),
        ({"algorithm": "fedavgg"}, "algorithm: there is no 'fedavgg'"),
        ({"algorithm": {"kind": "fedavg", "mu": 1}}, "Unknown key 'algorithm.mu'; there are: none"),
        ({"algorithm": 5}, "algorithm = 5: give a name"),
        ({"partition": [1]}, "partition = [1]: give a name"),
        ({"participation": {"p": 1.5}}, "participation.p = 1.5: should be less"),
        ({"participation": {"p": 0.0}}, "participation.p = 0.0: should be greater"),
        ({"participation": {"p": []}}, "participation.p = []: should be a valid number"),
        ({"partition": {"clients": "many"}}, "partition.clients = 'many': should be a valid integer"),
        ({"training": {"lr": -1.0}}, "training.lr = -1.0: should be greater"),
        ({"training": {"transform": "rotate"}}, "training.transform = 'rotate': should be 'none' or 'crop-flip'"),
        ({"algorithm": {"eps": 2.0}}, "algorithm.eps = 2.0: should be less"),
        ({"algorithm": {"kind": 7}}, "algorithm: there is no 7"),
        ({"algorithm": {"kind": []}}, "algorithm: there is no []"),
        ({"dataset": 3}, "dataset = 3: should be a valid string"),
        ({"model": {"kind": 3}}, "model.kind = 3: should be a valid string"),
        ({"training": 3}, "training = 3: give a name"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(changes, reason):
    with pytest.raises(UserError, match=re.escape(reason)) as error:
        make_settings(changes)
    assert "\n" not in str(error.value)


NAMES = st.sampled_from(
    ["dataset", "rounds", "seed", "workers", "algorithm", "algorithm.mu", "partition", "partition.classes",
     "model.kind", "participation.p", "participation.kind", "delivery", "training.lr",
      "dropout", "x", "algorithm.kind.y", "a.b.c"]
)  # fmt: skip
VALUES = st.one_of(
    st.text(string.printable, max_size=8), st.floats().map(str), st.integers().map(str),
    st.sampled_from(["true", "[]", "[1, 2]", "{}", "{a = 1}", "1979-05-27", "rebafl", "fedavg", "markov", "''", '""']),
)  # fmt: skip


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_no_words_whatever_cause_anything_but_settings_or_a_sentence(pairs):
    try:
        settings = make_settings(parse_assignments([f"{name}={value}" for name, value in pairs]))
    except UserError as error:
        assert str(error).strip()
    else:
        assert make_settings(settings.plain()) == settings
