"""Reconstruction on a small run: directions, controls, sabotage, and numbers computed again from the files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rebafl import simulate
from rebafl.base.errors import UserError
from rebafl.data.arrays import from_arrays
from rebafl.privacy.audit import audit_run
from rebafl.privacy.curves import Plan
from rebafl.privacy.inversion import likeness, scores
from rebafl.privacy.inversion.album import FILE, load_album
from rebafl.privacy.inversion.decoder import upcnn
from rebafl.privacy.inversion.lineups import SIZE, SOME, Lineups, means_of, target
from rebafl.privacy.inversion.tools import Tool
from rebafl.privacy.inversion.vae import feature_vae
from rebafl.privacy.page import page
from rebafl.privacy.recompute import recomputed
from rebafl.privacy.verdicts import LEAKS, TOO_WEAK
from support.pictures import CLASSES, drawn
from support.toy import TOY_SETTINGS, quiet

EACH = 2400
SETTINGS = {
    **TOY_SETTINGS,
    "rounds": 1,
    "model": {"kind": "fashion-cnn"},
    "partition": {"kind": "pathological", "clients": 6, "classes": 2, "samples": 60},
    "participation": {"kind": "always"},
    "algorithm": "rebafl",
}


class Sabotaged:
    """An attack that cannot work, in one of several ways."""

    def __init__(self, name):
        self.name = name

    def prepare(self, known, k, tick):
        if self.name == "shuffled pairs":
            order = torch.randperm(len(known.pictures), generator=torch.Generator().manual_seed(0))
            wrong = known.features(known.pictures[order])
            honest = upcnn(20, 5).prepare(replace(known, features=lambda x: wrong[: len(x)]), 1, tick)
            return honest
        if self.name == "untrained":
            net = torch.nn.Linear(known.features(known.pictures[:1]).shape[1], known.pictures[0].numel())
            return lambda means: net(means).detach().sigmoid().reshape(-1, *known.pictures.shape[1:])
        mean = known.pictures.mean(0)
        return lambda means: mean.expand(len(means), *mean.shape)


SABOTAGES = ("untrained", "class mean", "shuffled pairs")


def tools():
    honest = [Tool(upcnn(60, 10), 20, 5, shallow_ks=(1,)), Tool(feature_vae(60, 10), 20, 5, (1,), (), False)]
    return [*honest, *(Tool(Sabotaged(name), 20, 5, (), (), False) for name in SABOTAGES)]


@pytest.fixture(scope="module")
def blots():
    arrays = {}
    for part, each in (("train", EACH), ("test", 10)):
        pictures, labels = drawn(each, 5 if part == "train" else 6)
        arrays[f"x_{part}"] = (pictures * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        arrays[f"y_{part}"] = labels.numpy()
    return from_arrays("blots", arrays)


@pytest.fixture(scope="module")
def audited(tmp_path_factory, blots):
    folder = tmp_path_factory.mktemp("pictures")
    run = simulate(SETTINGS, folder / "run", data=blots, say=quiet)
    result = audit_run(run.path, Plan(ks=(1, 10), tools=tools), data=blots, say=quiet, to=folder)
    (folder / "audit.json").write_text(json.dumps(result))
    return folder, result


def row(result, attack, k=1, attacker="server", depth="deep", what=SOME):
    wanted = (attack, attacker, depth, what)
    rows = result["inversion"]["rows"]
    found = [r for r in rows if (r["attack"], r["attacker"], r["depth"], r["what"]) == wanted]
    return next(r for r in found if k in (r["k"], 0))


def test_single_images_are_made_again_and_means_less(audited):
    single, mean = (row(audited[1], "UpCNN", k) for k in (1, 10))
    assert single["ssim"]["value"] > single["ssim_class_mean"]["value"] + 0.2
    assert single["identified_pixels"]["low"] > 0.5
    assert single["psnr"]["value"] > single["psnr_others"]["value"]
    assert single["verdict"] == row(audited[1], "VAE from features")["verdict"] == LEAKS
    assert mean["identified_pixels"]["value"] < 0.5 * single["identified_pixels"]["value"]
    assert row(audited[1], "UpCNN", depth="shallow")["identified_pixels"]["low"] > 0.5
    assert row(audited[1], "UpCNN", 0, "client", what="broadcast")["means"] == 12


def test_negative_controls_are_at_chance(audited):
    for way, (chance, _) in scores.WAYS.items():
        for control in ("fakes", "permuted"):
            found = row(audited[1], "UpCNN")[f"{control}_{way}"]
            assert found["low"] <= chance <= found["high"]


@pytest.mark.parametrize("attack", SABOTAGES)
def test_an_attack_that_cannot_work_is_too_weak_to_tell(audited, attack):
    words = {v["word"] for v in audited[1]["verdicts"] if attack in v["attack"]}
    assert words == {TOO_WEAK}
    assert {r["verdict"] for r in audited[1]["inversion"]["rows"] if r["attack"] == attack} == {TOO_WEAK}


def test_a_harness_that_gives_the_place_away_is_too_weak_to_tell(audited, blots, monkeypatch):
    """Whoever stands at the place is identified, member or not: the fake members notice."""
    monkeypatch.setattr(likeness, "share_identified", lambda one, look, lineups: 1.0)
    for found in scores.scored(load_album(audited[0] / FILE), blots):
        assert found["verdict_by"]["pixels"] == found["verdict_by"]["features"] == TOO_WEAK


def test_every_number_is_computed_again_from_the_files(audited, blots):
    folder, result = audited
    assert recomputed(folder, data=blots) == len(result["inversion"]["rows"]) > 10


def test_a_changed_number_and_other_data_are_noticed(audited, blots, tmp_path):
    folder, result = audited
    changed = json.loads(json.dumps(result))
    changed["inversion"]["rows"][0]["ssim"]["value"] += 1e-4
    (tmp_path / "audit.json").write_text(json.dumps(changed))
    (tmp_path / FILE).write_bytes((folder / FILE).read_bytes())
    with pytest.raises(UserError, match=r"ssim is .* in audit"):
        recomputed(tmp_path, data=blots)
    with pytest.raises(UserError, match="other data"):
        recomputed(folder, data=replace(blots, x_train=blots.x_train.flip(0)))
    (tmp_path / FILE).write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read"):
        recomputed(tmp_path, data=blots)


def test_the_page_shows_the_figure_and_needs_nothing_else(audited):
    text = page(audited[1])
    assert 'src="data:image/png;base64,' in text
    assert "http" not in text


def test_line_ups_hide_one_member_among_non_members():
    own, others = np.arange(50), np.arange(1000, 1400)
    some = means_of(3, CLASSES - 1, own, 10, 5, others, seed=0)
    assert len(some) == 5
    places = []
    for one in some:
        assert len(one.members) == len(set(one.members)) == 10
        assert set(one.others) & set(one.fake_members) == set()
        for real, place in zip(one.real.positions, one.real.places, strict=True):
            assert len(set(real)) == SIZE
            assert [position for position in real if position < 1000] == [real[place]]
            assert real[place] in one.members
            places.append(int(place))
        assert one.fake.positions.min() >= 1000
    assert len(set(places)) > 1
    again = target(3, 0, "sent", 50, own, others, 0)
    assert np.array_equal(again.real.positions, target(3, 0, "sent", 50, own, others, 0).real.positions)
    assert len(set(again.real.positions[np.arange(20), again.real.places])) == 20  # different members


def test_those_that_are_equally_near_share_a_hit():
    rows = torch.tensor([[0.0], [1.0], [1.0], [3.0]])
    lineup = Lineups(np.array([[0, 1, 2, 3]]), np.array([1]))

    def look(index):
        return rows[torch.from_numpy(np.asarray(index))]

    assert likeness.share_identified(torch.tensor([1.0]), look, lineup) == 0.5
    assert likeness.share_identified(torch.tensor([0.1]), look, lineup) == 0.0
    assert likeness.share_identified(torch.tensor([float("nan")]), look, lineup) == 0.0


def test_rare_hits_have_an_interval_no_narrower_than_wilsons():
    nothing = scores.rate([0.0] * 6, 12, 0)
    assert nothing.high == pytest.approx(3.8415 / (12 + 3.8415), abs=1e-4)
    assert scores.rate([0.0] * 6, 600, 0).high < 0.01


def test_similarity_by_hand():
    picture = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    ssim, psnr = likeness.similarity(picture, picture)
    assert ssim == pytest.approx([1, 1], abs=1e-5)
    assert psnr == pytest.approx([100, 100])
    assert likeness.similarity(picture, picture + 0.1)[1] == pytest.approx([20, 20], abs=1e-3)
