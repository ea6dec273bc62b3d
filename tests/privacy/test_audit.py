"""The whole audit on a small run: directions, controls, sabotage, and the page."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from rebafl.privacy.audit import audit_run
from rebafl.privacy.own_data import audit_model
from rebafl.privacy.page import page, risk_sentences
from rebafl.privacy.verdicts import LEAKS, TOO_WEAK
from rebafl.runs.export import export_model, model_of_run
from support.clouds import CLASSES, PLAN, run_clouds
from support.toy import quiet


def words(result, attack, attacker="server"):
    return {v["word"] for v in result["verdicts"] if v["attack"].startswith(attack) and v["attacker"] == attacker}


def curve(result, attacker, round):
    found = next(c for c in result["curves"] if (c["attacker"], c["round"]) == (attacker, round))
    return {point["k"]: point for point in found["points"]}


def test_fewer_images_leak_more_and_controls_hold(audited):
    last = curve(audited, "server", "6")
    aucs = [last[k]["auc"]["value"] for k in PLAN.ks]
    assert aucs == sorted(aucs, reverse=True)
    assert last[1]["auc"]["value"] > 0.99
    assert all(abs(point["fakes"]["value"] - 0.5) < 0.03 for point in last.values())
    assert all(abs(row["gap"]) <= 0.03 for row in audited["synthetic"])
    assert curve(audited, "client", "6")[10]["auc"]["value"] < last[10]["auc"]["value"]


def test_more_rounds_leak_no_less(audited):
    assert (
        curve(audited, "server", "combined")[50]["auc"]["value"]
        > curve(audited, "server", "1")[50]["auc"]["value"] - 0.02
    )


def test_verdicts(audited):
    assert words(audited, "tracing, each client's upload") == {LEAKS}
    assert words(audited, "tracing, means of some", "client") == {LEAKS}
    assert words(audited, "prototypes of single clients") == {LEAKS}
    assert words(audited, "class counts") == {LEAKS}
    assert audited["exposure"]["subtraction_error"] < 1e-4
    assert audited["what"]["replay_has_the_recorded_bits"][6]


def test_what_no_attack_looks_at_is_said(tmp_path, clouds, audited):
    """Other tensors than prototypes are not attacked: a page without a verdict on them must not look reassuring."""
    other = run_clouds(tmp_path / "other", clouds, algorithm="fedtrack", rounds=1)
    found = audit_run(other.path, replace(PLAN, rounds=(1,)), clouds, say=quiet)["missing"]
    assert "length, means, scatter, which clients share besides" in found
    assert not any("share besides" in text for text in audited["missing"])


def test_a_sabotaged_attack_is_too_weak_to_tell(run, clouds):
    def blind(images, mean, k):
        return np.zeros(len(images))

    def wrong(images, mean, k):  # a random direction in place of the mean
        return images @ np.random.default_rng(0).normal(size=images.shape[1])

    for score in (blind, wrong):
        sabotaged = audit_run(run, replace(PLAN, rounds=(6,), score=score), data=clouds, say=quiet)
        assert words(sabotaged, "tracing, each client's upload") == {TOO_WEAK}
        assert words(sabotaged, "tracing", "client") == words(sabotaged, "tracing") == {TOO_WEAK}


def test_what_shares_no_prototypes_is_audited_for_the_rest(tmp_path, clouds):
    run_clouds(tmp_path / "a", clouds, algorithm="fedavg", rounds=1)
    result = audit_run(tmp_path / "a", PLAN, data=clouds, say=quiet)
    assert result["curves"] == []
    assert result["exposure"] is result["risk"] is None
    assert words(result, "membership")
    assert "Verdicts" in page(result)


def test_a_server_that_sees_sums_attacks_the_sum(tmp_path, clouds):
    run_clouds(tmp_path / "a", clouds, rounds=2, protect={"secagg": True}, algorithm={"kind": "rebafl", "memory": True})
    result = audit_run(tmp_path / "a", replace(PLAN, rounds=(2,)), data=clouds, say=quiet)
    assert {row["what"] for row in result["sent"] if row["attacker"] == "server"} == {"sum of the uploads"}
    assert result["linking"] == []
    assert result["counts"]["held"] is None
    assert not words(result, "class counts")
    assert result["what"]["replay_has_the_recorded_bits"][2]
    alone = result["exposure"]["holders"].get(1, 0)
    verdict = next(v for v in result["verdicts"] if v["attack"] == "prototypes of single clients")
    assert verdict["reason"].startswith(f"sums of one holder: {alone} ")


def test_noise_answers_the_risk_by_the_number_of_uploads(tmp_path, clouds):
    """Noise of 2.2 keeps it for two uploads of a client and not for three: 1.467 √2 < 2.2 < 1.467 √3."""
    words_ = {"rounds": 4, "participation": "always", "protect": {"clip": 4.0, "noise": 2.2, "min_count": 5}}
    run_clouds(tmp_path / "a", clouds, **words_)
    result = audit_run(tmp_path / "a", replace(PLAN, rounds=(4,)), data=clouds, say=quiet)
    assert result["risk"]["rounds_broken_for_server"] == [3, 4]
    assert any("behind noise" in v["reason"] for v in result["verdicts"])
    traced = next(row for row in result["sent"] if row["what"] == "each client's upload")
    assert traced["auc"]["value"] < 0.62


def test_the_risk_is_answered(audited):
    risk = audited["risk"]
    assert risk["k"] > 50  # so that every upload of 50 images broke it
    assert risk["rounds_broken_for_server"] == [1, 2, 3, 4, 5, 6]
    assert 6 not in risk["rounds_broken_for_clients"]  # nobody was told of the last
    assert risk["noise_one_round"] == pytest.approx(1.467, abs=1e-3)
    assert any("1-6" in sentence for sentence in risk_sentences(risk))


def test_the_page_needs_nothing_else(audited):
    text = page(audited)
    assert all(word in text for word in ("<svg", "theory", "leaks"))
    assert not re.search(r"(src|href)=(?!\"data:)|@import|url\(", text)


def own_data(path, clouds, private, public=3000):
    arrays: dict[str, Any] = {}
    for part, count in (("train", private), ("test", public)):
        x, y = getattr(clouds, f"x_{part}").numpy(), getattr(clouds, f"y_{part}").numpy()
        rows = np.concatenate([np.flatnonzero(y == c)[:count] for c in range(CLASSES)])
        arrays |= {f"x_{part}": x[rows], f"y_{part}": y[rows]}
    np.savez(path, **arrays)
    return path


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["privacy", "audit", *map(str, arguments)])


def test_own_data_before_joining(run, clouds, tmp_path):
    export_model(model_of_run(run), tmp_path / "model")
    few = own_data(tmp_path / "few.npz", clouds, 20)
    done = invoke(tmp_path / "model", "--data", few, "--k", "1,2,10", "--to", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.exception
    result = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert json.loads(done.stdout) == result
    assert result["what"]["own_images"] == {str(c): 20 for c in range(CLASSES)}
    assert set(result["risk"]["classes_that_would_break_it"]) == set(map(str, range(CLASSES)))
    assert (tmp_path / "out" / "audit.html").exists()
    assert words(result, "tracing") == {LEAKS}
    assert words(result, "class counts") == {LEAKS}
    assert words(result, "membership")
    assert result["risk"]["own_k"] == {str(c): 20 for c in range(CLASSES)}
    assert min(result["risk"]["holders_alike"].values()) > 2
    said = " ".join(risk_sentences(result["risk"]))
    assert "protect.min_holders hides such classes" in said
    assert "1.47 for 1" in said


def test_own_data_are_audited_with_the_runs_protections(run, clouds, tmp_path):
    """The upload is the one that the client would send: a class of too few images is not in it, nor attacked."""
    few = own_data(tmp_path / "few.npz", clouds, 20)
    run_clouds(tmp_path / "kept", clouds, protect={"min_count": 21, "min_holders": 2}, rounds=1)
    result = audit_model(tmp_path / "kept", str(few), PLAN, quiet)
    assert result["sent"] == []
    assert len(result["what"]["not_sent"]) == CLASSES
    assert not words(result, "tracing")
    assert not words(result, "class counts")
    assert "protect.min_holders hides" not in " ".join(risk_sentences(result["risk"]))
    run_clouds(tmp_path / "noisy", clouds, protect={"clip": 2.0, "noise": 10.0}, rounds=1)
    noisy = audit_model(tmp_path / "noisy", str(few), PLAN, quiet)
    plain = audit_model(run, str(few), PLAN, quiet)
    worst = [max(row["auc"]["value"] for row in one["sent"]) for one in (plain, noisy)]
    assert worst[1] < 0.7 < worst[0]


def test_own_images_that_an_update_learned_by_heart_are_told_from_others(clouds, tmp_path):
    """Labels that mean nothing can only be learned by heart."""
    random = np.random.default_rng(0)
    mixed = replace(
        clouds, y_train=clouds.y_train[random.permutation(len(clouds.y_train))],
        y_test=clouds.y_test[random.permutation(len(clouds.y_test))],
    )  # fmt: skip
    training = {"epochs": 150, "batch": 4, "lr": 0.05}
    run_clouds(tmp_path / "r", clouds, rounds=1, algorithm="fedavg", training=training)
    few = own_data(tmp_path / "few.npz", mixed, 12)
    result = audit_model(tmp_path / "r", str(few), PLAN, quiet)
    assert words(result, "membership by loss in") == {LEAKS}
    assert result["sent"] == []
    assert words(result, "class counts") == {LEAKS}


def test_own_data_with_few_public_images_are_too_weak_to_tell(run, clouds, tmp_path):
    few = own_data(tmp_path / "few.npz", clouds, 20, public=300)
    result = json.loads(invoke(run, "--data", few, "--k", "1,2", "--to", tmp_path / "out", "--json").stdout)
    assert words(result, "tracing") == words(result, "membership") == {TOO_WEAK}
    assert all("non-members" in v["reason"] for v in result["verdicts"] if v["attack"].startswith("tracing"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "does not exist"),
        (["{run}", "--risk", "5%"], "tpr=0.05@fpr=0.01"),
        (["{run}", "--rounds", "x"], "whole numbers"),
        (["{run}", "--k", "0"], "whole numbers"),
        (["{run}", "--rounds", "1", "--data", "own.npz"], "leave one of them out"),
        (["{run}", "--data", "missing.npz"], "missing.npz"),
        (["{run}"], "clouds"),  # data that only Python has
    ],
)
def test_bad_input_is_one_sentence(run, arguments, sentence):
    done = invoke(*(argument.format(run=run) for argument in arguments))
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)


def test_data_of_another_shape_are_refused(run, tmp_path):
    x, y = np.zeros((40, 5), dtype=np.float32), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert "reads" in str(invoke(run, "--data", tmp_path / "own.npz").exception)
