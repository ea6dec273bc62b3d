"""A run config becomes settings and options, or one sentence."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rebafl import UserError
from rebafl.base.config import read_toml
from rebafl.federation.app.options import Options, read_run_config
from support.paths import REPOSITORY


def test_the_apps_own_config_is_good():
    values = read_toml(REPOSITORY / "pyproject.toml")["tool"]["flwr"]["app"]["config"]
    flat = {**{f"partition.{k}": v for k, v in values.pop("partition").items()}, **values}
    settings, options = read_run_config(flat)
    assert (settings.dataset, settings.partition.clients, settings.participation.name) == ("fashion-mini", 5, "always")
    assert options == Options()
    assert {field.name.replace("_", "-") for field in fields(Options)} <= values.keys()  # else `flwr run` cannot set it


def test_words_win_over_the_listed_keys_and_may_change_the_kind():
    values = {"partition.clients": 5, "algorithm": "fedprox", "algorithm.mu": 0.5, "deadline": 60}
    settings, options = read_run_config({**values, "settings": "partition=iid partition.clients=3"})
    assert (settings.partition.name, settings.partition.clients) == ("iid", 3)
    assert settings.plain()["algorithm"]["mu"] == 0.5
    assert options.deadline == 60


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"deadline": 0}, "federation.deadline = 0"),
        ({"min-nodes": 2.5}, "min_nodes"),
        ({"dedline": 3}, "dedline"),
        ({"settings": "mu"}, "KEY=VALUE"),
        ({"settings": "a='"}, "KEY=VALUE"),
        ({"settings": "dropout=lost"}, "on purpose"),
        ({"algorithm": "fedsgd"}, "fedsgd"),
    ],
)
def test_wrong_run_configs_are_one_sentence(values, reason):
    with pytest.raises(UserError, match=reason):
        read_run_config(values)
