"""A setting that is added or renamed orphans no run and no result."""

import json
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from PIL import Image
from pydantic import Field
from typer.testing import CliRunner

import rebafl.runs.settings as module
from rebafl import (
    Algorithm,
    Training,
    UserError,
    cli,
    export_model,
    load_model,
    make_settings,
    model_of_run,
    parameters,
)
from rebafl.algorithms import KINDS as ALGORITHMS
from rebafl.algorithms.fedprox import FedProx
from rebafl.algorithms.moon import Moon
from rebafl.base.config import Added, Plain, added
from rebafl.paper.results import write
from rebafl.paper.verify import read
from rebafl.population.participation import Always, Bernoulli, Participation
from rebafl.report.summary import group_runs, read_run
from rebafl.runs.record import Record
from rebafl.runs.settings import RENAMED, SECTIONS, Settings, complete, stored_settings
from rebafl.runs.verify import repeat
from support.toy import lines, run_toy, same_bits, weights

WORDS = {"dataset": "fashion-mini", "algorithm": {"kind": "fedprox", "mu": 0.1}, "seed": 3}


@parameters
class GrownTraining(Training):
    later_steps: Annotated[int, Field(ge=0), Added(before=0)] = 0
    later_bound: Annotated[float, Field(ge=0), Added(before=0.0)] = 1.0  # new runs do otherwise than old ones


@parameters
class GrownFedProx(FedProx):
    rates: Annotated[tuple[float, ...], Added(before=(1.0,))] = (1.0, 0.5)


@parameters
class GrownSettings(Settings):
    arrival: Annotated[Participation, Added(before=Always())] = Bernoulli()
    pace: Annotated[str, Added(before="any")] = "any"


def grow_keys(monkeypatch):
    monkeypatch.setitem(module.TYPES, "training", GrownTraining)
    monkeypatch.setitem(ALGORITHMS, "fedprox", GrownFedProx)


def grow_section(monkeypatch):
    monkeypatch.setattr(module, "Settings", GrownSettings)
    monkeypatch.setattr(module, "SECTIONS", (*SECTIONS, "arrival"))
    monkeypatch.setitem(module.TYPES, "arrival", Participation)
    monkeypatch.setitem(module.KINDS, "arrival", module.KINDS["delivery"])
    monkeypatch.setitem(module._DEFAULTS, "arrival", {"kind": "bernoulli"})


NEUTRAL = {"training": {"later_bound": 0.0}, "algorithm": {"kind": "fedprox", "mu": 0.1, "rates": [1.0]}}


class Before(NamedTuple):
    """What settings were when no key had been added or renamed."""

    plain: Plain
    identity: Plain
    digest: str
    label: str


@pytest.fixture
def before():
    settings = make_settings(WORDS)
    return Before(settings.plain(), settings.identity(), settings.digest, settings.label)


def same_name(settings, before):
    return (settings.digest, settings.label) == (before.digest, before.label)


def test_added_keys_are_found():
    assert added(GrownTraining) == added(Training) | {"later_steps": 0, "later_bound": 0.0}
    assert added(GrownFedProx) == added(FedProx) | {"rates": [1.0]}


def test_a_later_key_that_changes_nothing_is_no_part_of_the_identity(before, monkeypatch):
    grow_keys(monkeypatch)
    grown = make_settings(WORDS, NEUTRAL)
    assert grown.plain()["training"]["later_steps"] == 0
    assert grown.plain()["training"]["later_bound"] == 0.0
    assert grown.identity() == before.identity
    assert same_name(grown, before)
    assert stored_settings(before.plain) == grown
    assert stored_settings(grown.plain()) == grown
    assert same_name(stored_settings(json.loads(json.dumps(grown.plain()))), before)


def test_any_other_value_is_another_result(before, monkeypatch):
    grow_keys(monkeypatch)
    new = make_settings(WORDS)
    assert new.plain()["training"]["later_bound"] == 1.0, "new runs have the new default"
    names = {new.digest, before.digest}
    for change in (
        {"training": {"later_bound": 2.0}},
        {"training": {"later_steps": 1}},
        {"algorithm": {"rates": [1.0, 1.0]}},
    ):
        names.add(make_settings(WORDS, NEUTRAL, change).digest)
    assert len(names) == 5


def test_a_whole_section_can_be_added(before, monkeypatch):
    grow_section(monkeypatch)
    grown = stored_settings(before.plain)
    assert grown.plain()["arrival"] == {"kind": "always"}
    assert grown.plain()["pace"] == "any"
    assert same_name(grown, before)
    assert stored_settings(grown.plain()) == grown
    assert not same_name(make_settings(WORDS), before)
    assert make_settings(WORDS).identity()["arrival"] == {"kind": "bernoulli", "p": 0.5}


def test_stored_settings_are_completed_without_importing_anything(before, monkeypatch):
    stored = before.plain | {"algorithm": {"kind": "nowhere:Mine", "x": 1}, "dataset": "nowhere:data"}
    assert complete(stored) == stored
    grow_keys(monkeypatch)
    found = complete(stored)
    assert found["algorithm"] == stored["algorithm"]
    assert found["training"] == {**stored["training"], "later_steps": 0, "later_bound": 0.0}
    assert complete(found) == found


def run_old(out, toy, **changes):
    return run_toy(out, toy, algorithm={"kind": "fedprox", "mu": 0.1}, **changes)


def test_an_old_run_resumes_to_the_same_bits(tmp_path, toy, monkeypatch):
    whole = run_old(tmp_path / "w", toy, rounds=4)
    run_old(tmp_path / "r", toy, rounds=2)
    digest = Record(tmp_path / "r").environment()["settings_sha256"]
    grow_keys(monkeypatch)
    resumed = run_old(tmp_path / "r", toy, rounds=4)  # the same script as before
    assert same_bits(weights(resumed), weights(whole))
    assert lines(tmp_path / "r") == lines(tmp_path / "w")
    assert resumed.environment()["settings_sha256"] == digest
    assert run_old(tmp_path / "r", toy, rounds=5).round == 5, "and once more, now that the keys are written down"
    with pytest.raises(UserError, match=r"training\.later_bound is 0\.0 there, 2\.0 here"):
        run_old(tmp_path / "r", toy, training={"epochs": 2, "batch": 8, "lr": 0.05, "later_bound": 2.0})
    with pytest.raises(UserError, match=r"algorithm\.mu is 0\.1 there, 0\.2 here"):
        run_toy(tmp_path / "r", toy, algorithm={"kind": "fedprox", "mu": 0.2})


def test_old_and_new_runs_are_one_group(tmp_path, toy, monkeypatch):
    run_old(tmp_path / "0", toy, rounds=1)
    grow_keys(monkeypatch)
    neutral = {"algorithm": NEUTRAL["algorithm"], "training": {"epochs": 2, "batch": 8, "lr": 0.05, "later_bound": 0.0}}
    run_toy(tmp_path / "1", toy, rounds=1, seed=1, **neutral)
    (group,) = group_runs([read_run(tmp_path / name) for name in "01"])
    assert len(group.runs) == 2
    run_toy(tmp_path / "2", toy, rounds=1, seed=2, algorithm=NEUTRAL["algorithm"])
    labels = [group.label for group in group_runs([read_run(tmp_path / name) for name in "012"])]
    assert labels == ["fedprox, training.later_bound=0.0", "fedprox, training.later_bound=1.0"]


def command(*words):
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A run directory and a result file that were written before the keys came."""
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8), np.arange(40) % 2
    np.savez("d.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    Image.fromarray(x[0]).save("image.png")
    words = ["dataset=d.npz", "model=mlp", "partition=iid", "partition.clients=3", "training.epochs=1", "workers=1"]
    command("run", *words, "algorithm=fedprox", "rounds=2", "out=run", "-q")
    record = Record(Path("run"))
    write(Path("result.json"), stored_settings(record.config()), record)
    export_model(model_of_run("run"), "exported")
    grow_keys(monkeypatch)
    return record


def test_an_old_run_is_exported_asked_verified_and_resumed_by_command(old):
    (asked,) = json.loads(command("predict", "run", "image.png", "--json"))
    command("export", "run", "--to", "again")
    assert asked == json.loads(command("predict", "again", "image.png", "--json"))[0]
    assert load_model("exported").classes == ("0", "1")
    for path in ("run", "result.json"):
        kept = read(Path(path))
        assert kept.settings.plain()["training"]["later_bound"] == 0.0
        assert repeat(kept, 0, Path(f"repeated-{path}"), say=lambda text: None).same
    text = Path("run/config.toml").read_text()
    assert "later_bound" not in text
    command("run", "out=run", "rounds=3", "-q")
    assert len(old.rounds()) == 3
    assert "later_bound = 0.0" in Path("run/config.toml").read_text()


def test_the_settings_file_of_an_old_run_means_what_it_meant(old):
    command("run", "run/config.toml", "seed=1", "out=other", "-q")
    assert Record(Path("other")).config()["training"]["later_bound"] == 0.0
    (group,) = json.loads(command("compare", "run", "other", "--json"))
    assert len(group["runs"]) == 2
    assert "later_bound = 0.0" in command("settings", "run/config.toml")
    Path("own.toml").write_text(Path("run/config.toml").read_text().rpartition("# sha256")[0])
    assert "later_bound = 1.0" in command("settings", "own.toml"), "what was written by hand takes new defaults"
    command("sweep", "run/config.toml", "seed=0,1", "out=s", "-q")
    assert all(
        Record(path.parent).config()["training"]["later_bound"] == 0.0 for path in Path("s").glob("*/config.toml")
    )


# --- renamed keys


def test_old_names_are_read_as_the_new_ones(before, monkeypatch):
    stored = before.plain
    monkeypatch.setitem(RENAMED, "training.weight_decay", "training.shrink")
    monkeypatch.setitem(RENAMED, "training.shrink", "training.decay")  # renamed twice
    monkeypatch.setitem(RENAMED, "dropout", "absence")
    monkeypatch.setitem(RENAMED, "seed", "training.seed")  # and moved
    found = complete(stored)
    assert found["training"]["decay"] == stored["training"]["weight_decay"]
    assert found["absence"] == "away"
    assert found["training"]["seed"] == 3
    assert not {"weight_decay", "shrink"} & found["training"].keys()
    assert not {"dropout", "seed"} & found.keys()
    assert complete(found) == found


@parameters
class Pulled(Algorithm):
    """FedProx, had `mu` been renamed to `pull`."""

    name = "fedprox"
    pull: float = 0.01

    def correct(self, net, context):
        FedProx(mu=self.pull).correct(net, context)


GrownFedProx.__module__ = Pulled.__module__ = FedProx.__module__  # as if they were of the package


def rename_key(monkeypatch):
    monkeypatch.setitem(RENAMED, "algorithm.fedprox.mu", "algorithm.fedprox.pull")
    monkeypatch.setitem(ALGORITHMS, "fedprox", Pulled)


def test_a_renamed_key_keeps_digest_and_label(before, monkeypatch):
    rename_key(monkeypatch)
    found = stored_settings(before.plain)
    assert found.algorithm == Pulled(pull=0.1)
    assert same_name(found, before)
    assert complete(found.plain()) == found.plain()


def test_words_with_the_old_name_are_understood(monkeypatch):
    rename_key(monkeypatch)
    found = make_settings({"algorithm": {"kind": "fedprox", "mu": 0.1}})
    assert found.algorithm == Pulled(pull=0.1)
    assert make_settings({"algorithm": "fedprox"}, {"algorithm": {"mu": 0.1}}) == found
    assert make_settings({"algorithm": {"kind": "fedprox", "pull": 9.0}}, {"algorithm": {"mu": 0.1}}) == found
    assert make_settings({"algorithm": {"kind": "moon", "mu": 2.0}}).algorithm == Moon(mu=2.0), "that of another kind"
    with pytest.raises(UserError, match=r"algorithm\.fedprox\.mu is called algorithm\.fedprox\.pull now; give one"):
        make_settings({"algorithm": {"kind": "fedprox", "mu": 0.1, "pull": 0.1}})


def test_a_run_with_a_renamed_key_is_read_and_resumes(tmp_path, toy, monkeypatch):
    whole = run_old(tmp_path / "w", toy, rounds=3)
    run_old(tmp_path / "r", toy, rounds=1)
    rename_key(monkeypatch)
    assert read_run(tmp_path / "r").config["algorithm"] == {"kind": "fedprox", "pull": 0.1}
    resumed = run_toy(tmp_path / "r", toy, algorithm={"kind": "fedprox", "pull": 0.1}, rounds=3)
    assert same_bits(weights(resumed), weights(whole))
    run_old(tmp_path / "r", toy, rounds=4)


def test_unknown_keys_are_refused_as_ever(monkeypatch):
    grow_keys(monkeypatch)
    message = r"Unknown key 'training\.later_bond' \(did you mean 'later_bound'\?\); there are: batch, "
    with pytest.raises(UserError, match=message):
        make_settings({"training": {"later_bond": 1}})
    with pytest.raises(UserError, match=r"Unknown key 'sed' \(did you mean 'seed'\?\)"):
        make_settings({"sed": 1})
    with pytest.raises(UserError, match=r"Unknown key 'training\.gone'"):
        stored_settings(make_settings({}).plain() | {"training": {"gone": 1}})


def test_section_names_stand_once():
    assert SECTIONS == (
        "model",
        "partition",
        "participation",
        "delivery",
        "algorithm",
        "training",
        "protect",
        "robust",
        "attack",
        "stop",
        "seeds",
        "evaluate",
    )
    assert make_settings({}) == Settings()
