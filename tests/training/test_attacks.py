"""Clients of a simulation that lie on purpose."""

from dataclasses import replace

import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms.aggregate import Upload
from rebafl.federation.app.options import read_run_config
from rebafl.training.attacks import Liars, NoAttack, SignFlip, drawn
from rebafl.training.loop import unchanged
from support.methods import client
from support.toy import lines, run_toy, same_bits, weights

ALL = {"participation": "always"}
UPLOAD = Upload(
    1, {"w": torch.tensor([1.0, -2.0]), "n": torch.tensor(7)}, torch.tensor([3, 4]), {"prototypes": torch.ones(2, 2)}
)


def test_a_flipped_upload_by_hand():
    lie = SignFlip(scale=5.0).flipped(UPLOAD)
    assert lie.change["w"].tolist() == [-5.0, 10.0]
    assert lie.change["n"].item() == 7, "a counter is no weight"
    assert lie.shared["prototypes"].tolist() == [[-5.0, -5.0], [-5.0, -5.0]]
    assert torch.equal(lie.counts, UPLOAD.counts)
    assert torch.equal(SignFlip(shared=False).flipped(UPLOAD).shared["prototypes"], torch.ones(2, 2))


@pytest.mark.parametrize(("share", "clients", "liars"), [(0.2, 10, 2), (0.2, 6, 1), (0.0, 6, 0), (1.0, 3, 3)])
def test_who_lies_is_drawn_by_the_seed(share, clients, liars):
    who = drawn(share, clients, seed=4)
    assert len(who) == liars
    assert who <= set(range(clients))
    assert who == drawn(share, clients, seed=4)


def test_other_seeds_have_other_liars():
    assert len({drawn(0.2, 10, seed) for seed in range(10)}) > 5


def test_without_an_attack_uploads_leave_as_they_are(toy, tmp_path):
    assert NoAttack().lies(10, 0) is unchanged
    plain, none = run_toy(tmp_path / "p", toy), run_toy(tmp_path / "n", toy, attack="none", robust="none")
    assert lines(plain.path) == lines(none.path)
    assert same_bits(weights(plain), weights(none))
    assert make_settings({}).digest == make_settings({"attack": "none", "robust": "none"}).digest
    assert make_settings({}).digest != make_settings({"attack": "sign-flip"}).digest


def test_workers_and_a_resume_give_the_same_lies_and_the_record_names_the_liars(toy, tmp_path):
    changes = {"attack": {"kind": "sign-flip", "share": 0.34}, "algorithm": "scaffold", **ALL}
    whole = run_toy(tmp_path / "w", toy, workers=2, **changes)
    run_toy(tmp_path / "r", toy, rounds=1, **changes)
    resumed = run_toy(tmp_path / "r", toy, **changes)
    assert lines(whole.path) == lines(resumed.path)
    assert same_bits(weights(whole), weights(resumed))
    assert not same_bits(weights(whole), weights(run_toy(tmp_path / "honest", toy, algorithm="scaffold", **ALL)))
    one, other = sorted(drawn(0.34, 6, 0))
    assert f"For the attack of this simulation lie: clients {one}, {other}." in whole.environment()["warnings"]


def test_only_liars_lie(toy):
    honest = client(toy, torch.arange(3))
    liars = Liars(frozenset([honest.id + 1]), SignFlip().flipped)
    assert liars(UPLOAD, honest) is UPLOAD
    assert liars(UPLOAD, replace(honest, id=honest.id + 1)).change["w"].tolist() == [-5.0, 10.0]


def test_a_federation_has_no_use_for_it():
    with pytest.raises(UserError, match="attack=sign-flip makes clients lie, in simulations; use attack=none"):
        read_run_config({"settings": "attack=sign-flip"})
