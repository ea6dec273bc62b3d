"""Whole runs in which a rule takes the place of the mean: every method, workers, resume, liars, and what is refused."""

import pytest
import torch

from rebafl import UserError, make_settings, parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.fedavg import FedAvg
from rebafl.algorithms.rebafl import ReBaFL
from rebafl.algorithms.robust import KINDS as DEFENCES
from rebafl.runs import spool
from support.methods import BOUNDS
from support.toy import lines, run_toy, same_bits, weights

ALL = {"participation": "always"}
FEW = {"kind": "pathological", "clients": 6, "classes": 2, "samples": 10}
RULES = sorted(set(DEFENCES) - {"none"})
ATTACK = {"attack": {"kind": "sign-flip", "share": 0.2, "scale": 50.0}}
IID = {"kind": "iid", "clients": 10}


def changes_for(name, rule):
    few = {"samples": 5} if name == "fedavg-ft" else {}
    return {"algorithm": {"kind": name, **few}, "partition": FEW, "robust": rule}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", sorted(set(KINDS) - BOUNDS))
def test_every_method_runs_with_every_rule(toy, tmp_path, name, rule):
    record = run_toy(tmp_path / "r", toy, rounds=2, **changes_for(name, rule), **ALL, **ATTACK)
    assert all(line.updated and not line.discarded for line in record.rounds())
    mean = run_toy(tmp_path / "m", toy, rounds=2, **changes_for(name, "none"), **ALL, **ATTACK)
    assert not same_bits(weights(record), weights(mean))


@pytest.mark.parametrize("rule", RULES)
def test_any_number_of_workers_and_a_resume_give_the_same_bits(toy, tmp_path, rule):
    changes = {"algorithm": "rebafl", "robust": rule, "rounds": 4}
    whole = run_toy(tmp_path / "w", toy, workers=2, **changes)
    run_toy(tmp_path / "r", toy, workers=1, **{**changes, "rounds": 2})
    resumed = run_toy(tmp_path / "r", toy, workers=1, **changes)
    assert lines(whole.path) == lines(resumed.path)
    assert same_bits(weights(whole), weights(resumed))
    assert same_bits(whole.server()["state"], resumed.server()["state"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["fedavg", "rebafl", "scaffold"])
def test_liars_do_little_harm(toy, tmp_path, name, rule):
    changes = {"algorithm": name, "partition": IID, "rounds": 6, **ALL}
    honest = run_toy(tmp_path / "h", toy, **changes).rounds()[-1].accuracy
    robust = run_toy(tmp_path / "r", toy, robust=rule, **changes, **ATTACK).rounds()[-1].accuracy
    mean = run_toy(tmp_path / "m", toy, **changes, **ATTACK).rounds()[-1].accuracy
    assert robust > mean + 20
    assert robust > honest - (25 if rule == "clip" else 10), "clipped lies still slow the others down"


@pytest.mark.parametrize("rule", RULES)
def test_uploads_that_wait_on_the_disk_give_the_same_bits(toy, tmp_path, monkeypatch, rule):
    changes = {"algorithm": "rebafl", "robust": rule, **ALL}
    memory = run_toy(tmp_path / "m", toy, **changes)
    monkeypatch.setattr(spool, "IN_MEMORY", 0)
    disk = run_toy(tmp_path / "d", toy, **changes)
    assert lines(memory.path) == lines(disk.path)
    assert same_bits(weights(memory), weights(disk))


def test_the_rule_is_part_of_what_a_run_is(toy, tmp_path):
    assert make_settings({"robust": "clip"}).digest != make_settings({}).digest
    assert (
        make_settings({"robust": {"kind": "trimmed", "share": 0.1}}).digest
        != make_settings({"robust": "trimmed"}).digest
    )
    run_toy(tmp_path / "r", toy, rounds=1, robust="clip")
    with pytest.raises(UserError, match=r"robust\.kind is 'clip' there, 'median' here"):
        run_toy(tmp_path / "r", toy, robust="median")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"robust": "krumm"}, r"robust: there is no 'krumm' \(did you mean 'krum'\?\); there are: clip, krum, median"),
        ({"robust": {"kind": "trimmed", "share": 0.5}}, r"robust\.share = 0\.5: should be less than 0\.5"),
        ({"robust": {"kind": "clip", "share": 0.1}}, "Unknown key 'robust.share'"),
        ({"attack": {"kind": "sign-flip", "share": 1.5}}, r"attack\.share = 1\.5: should be less than or equal to 1"),
        ({"attack": "label-flip"}, "attack: there is no 'label-flip'"),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_said(settings, reason):
    with pytest.raises(UserError, match=reason):
        make_settings(settings)


@pytest.mark.parametrize("rule", RULES)
def test_secure_aggregation_leaves_nothing_to_compare(toy, tmp_path, rule):
    reason = f"robust={rule} compares the uploads of single clients, and with protect.secagg only their sum is known"
    with pytest.raises(UserError, match=reason):
        run_toy(tmp_path / "r", toy, robust=rule, protect={"secagg": True})
    protect = {"central_noise": 1.0, "update_clip": 0.1, "counts": "withheld"}
    with pytest.raises(UserError, match=f"central_noise fits the mean of the changes, which robust={rule} is not"):
        run_toy(tmp_path / "r", toy, robust=rule, protect=protect, algorithm="fedavg")


def test_what_a_client_can_do_by_itself_works_with_secure_aggregation(toy, tmp_path):
    record = run_toy(tmp_path / "r", toy, rounds=1, protect={"secagg": True, "update_clip": 0.01}, **ALL)
    first = run_toy(tmp_path / "f", toy, rounds=1, protect={"update_clip": 0.01}, **ALL)
    assert record.rounds()[0].updated
    assert torch.allclose(weights(record)["head.weight"], weights(first)["head.weight"], atol=1e-6)


@parameters
class Picky(FedAvg):
    name = "picky"

    def aggregate(self, server, uploads, clients):
        return super().aggregate(server, uploads[:1], clients)


def test_a_method_that_replaces_aggregate_is_refused(toy, tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "picky", Picky)
    with pytest.raises(
        UserError, match=r"algorithm=picky replaces aggregate\(\), which takes none; give it next_server"
    ):
        run_toy(tmp_path / "r", toy, algorithm="picky", robust="clip")


OWN_RULE = """
import rebafl, torch

@rebafl.parameters
class Largest(rebafl.Defence):
    name = "largest"
    mistake: str = ""

    def combined(self, groups, weights):
        if self.mistake == "raise":
            raise ZeroDivisionError("oops")
        found = {name: torch.stack([group[name].double() for group in groups]).amax(0) for name in groups[0]}
        return {} if self.mistake == "nothing" else found
"""


@pytest.fixture
def own_rule(tmp_path, monkeypatch):
    (tmp_path / "own_rule.py").write_text(OWN_RULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_rule:Largest"


def test_a_rule_of_ones_own(toy, tmp_path, own_rule):
    record = run_toy(tmp_path / "r", toy, rounds=1, robust=own_rule)
    assert record.rounds()[0].updated
    assert record.config()["robust"]["kind"] == own_rule
    assert own_rule in record.environment()["own_code"]


@pytest.mark.parametrize(
    ("mistake", "reason"), [("raise", "ZeroDivisionError: oops"), ("nothing", "other names or shapes")]
)
def test_a_rule_of_ones_own_that_fails_is_one_sentence(toy, tmp_path, own_rule, mistake, reason):
    with pytest.raises(UserError, match=r"robust: combined\(\) of own_rule:Largest failed.*" + reason):
        run_toy(tmp_path / "r", toy, rounds=1, algorithm="fedavg", robust={"kind": own_rule, "mistake": mistake})


def test_a_method_sees_the_means_of_the_rule(toy, tmp_path, monkeypatch):
    """What a method keeps besides the weights is computed from protected values, too."""
    seen = []

    @parameters
    class Watching(ReBaFL):
        name = "watching"

        def next_server(self, server, means, clients):
            seen.append(means)
            return super().next_server(server, means, clients)

    monkeypatch.setitem(KINDS, "watching", Watching)
    run_toy(tmp_path / "r", toy, rounds=1, algorithm="watching", robust="median", partition=IID, **ALL, **ATTACK)
    (means,) = seen
    assert means.uploads == 10
    assert float(means.shared["prototypes"].abs().max()) <= 1.0, "features are tanh"
