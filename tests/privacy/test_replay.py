"""A replayed round is the round that was."""

import pytest
import torch

from rebafl.base.errors import UserError
from rebafl.privacy.replay import Replay
from support.clouds import run_clouds
from support.toy import quiet


def test_replayed_rounds_have_the_recorded_bits(run, clouds):
    replay = Replay(run, clouds, say=quiet)
    assert replay.last == 6
    assert {1, 6} <= set(replay.at_hand())
    scenes = replay.scenes([1, 5, 6])
    assert scenes[1].same_bits
    assert scenes[2].same_bits
    assert set(scenes[2].uploads) == replay.lines[5].used
    assert scenes[1].recipients == tuple(replay.lines[5].active)
    local = scenes[2].local(min(scenes[2].uploads))
    assert local.keys() == scenes[2].sent.weights.keys()


def test_a_round_without_checkpoint_is_reached_by_running_again(run, clouds, monkeypatch):
    replay = Replay(run, clouds, say=quiet)
    known = replay._kept(4)
    assert known is not None
    monkeypatch.setattr(replay.record, "points", list)
    scene = replay.scenes([5])[0]
    assert all(torch.equal(scene.before.weights[name], known.weights[name]) for name in known.weights)


def test_the_public_set_excludes_every_client(run, clouds):
    replay = Replay(run, clouds, say=quiet)
    public, split = set(replay.unheld().tolist()), replay.experiment.work.split
    held = {int(i) for client in range(split.clients) for i in split.indices(client)}
    assert not public & held
    assert len(public | held) == len(clouds.y_train)


def test_what_cannot_be_replayed_is_refused(run, clouds, tmp_path):
    with pytest.raises(UserError, match="rounds 1 to 6"):
        Replay(run, clouds, say=quiet).scenes([7])
    with pytest.raises(UserError, match="holds no run"):
        Replay(tmp_path)
    run_clouds(tmp_path / "scaffold", clouds, algorithm="scaffold", rounds=2)
    with pytest.raises(UserError, match="only round 1"):
        Replay(tmp_path / "scaffold", clouds, say=quiet).scenes([2])
