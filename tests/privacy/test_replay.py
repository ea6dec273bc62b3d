"""A replayed round is the round that was."""

import numpy as np
import pytest
import torch

from rebafl.base.errors import UserError
from rebafl.data.arrays import NAMES
from rebafl.federation.app.node_config import DATA
from rebafl.privacy.replay import Replay
from rebafl.secagg.messages import Stage
from support.clouds import run_clouds
from support.grid import CONFIG, STATEFUL, FakeGrid, Node, as_in_a_task, nodes_of
from support.grid import run as federate_in_process
from support.masked import MaskedGrid, lost_from, masked_nodes
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


@pytest.mark.parametrize("algorithm", STATEFUL)
def test_clients_that_keep_a_state_are_replayed_in_any_round(algorithm, clouds, tmp_path):
    """The last round has the recorded bits only if every state before it was right."""
    words = {"participation": {"kind": "bernoulli", "p": 0.6}, "delivery": {"kind": "bernoulli", "p": 0.8}}
    run_clouds(tmp_path / "r", clouds, algorithm=algorithm, rounds=4, **words)
    replay = Replay(tmp_path / "r", clouds, say=quiet)
    assert replay.at_hand() == [1]
    assert replay.early_middle_late()[-1] == 4
    scenes = {scene.round: scene for scene in replay.scenes([2, 4])}
    assert scenes[4].same_bits
    assert set(scenes[2].uploads) == replay.lines[1].used


@pytest.mark.parametrize(
    "protect",
    [
        {"min_holders": 3},
        {"min_holders": 3, "holders": "announced"},
        {"update_clip": 0.1, "central_noise": 0.5, "counts": "withheld"},
        {"clip": 2.0, "noise": 3.0, "min_count": 5, "counts": "rounded"},
        {"update_clip": 0.1, "update_noise": 0.5},
        {"secagg": True, "min_holders": 3},
        {"secagg": True, "update_clip": 0.1, "central_noise": 0.5, "counts": "withheld"},
    ],
    ids=lambda protect: next(iter(protect)) + str(len(protect)),
)
def test_what_the_server_does_to_protect_is_replayed(protect, clouds, tmp_path):
    run_clouds(tmp_path / "r", clouds, protect=protect, rounds=3)
    replay = Replay(tmp_path / "r", clouds, say=quiet)
    scene = replay.scenes([3])[0]
    assert scene.same_bits
    if replay.lines[2].hidden:
        assert (scene.after.state["mass"][list(replay.lines[2].hidden)] == 0).all()
    if "announced" in protect.values():
        few = list(replay.lines[2].unshared)
        assert all((upload.shared["prototypes"][few] == 0).all() for upload in scene.uploads.values())


@pytest.fixture
def config(tmp_path, clouds, monkeypatch):
    as_in_a_task(monkeypatch)
    np.savez(tmp_path / "clouds.npz", **{name: getattr(clouds, name).numpy() for name in NAMES})
    return {**CONFIG, "dataset": str(tmp_path / "clouds.npz"), "out": str(tmp_path / "federation")}


@pytest.mark.parametrize("algorithm", ["rebafl", "scaffold"])
def test_a_federation_whose_nodes_hold_the_settings_parts_is_replayed(config, algorithm):
    config |= {"algorithm": algorithm}

    def conduct(part, round, reply):
        return None if (part, round) == (1, 2) else reply

    record = federate_in_process(config, FakeGrid(nodes_of(config), conduct))
    replay = Replay(record.path, say=quiet)
    scenes = replay.scenes([2, 3])
    assert set(scenes[0].uploads) == {0, 2, 3}
    assert scenes[1].same_bits


def test_a_masked_federation_is_replayed_by_who_stayed(config, tmp_path):
    config |= {"algorithm": "rebafl", "deadline": 1.0}
    config["settings"] += " protect.secagg=true"
    grid = MaskedGrid(masked_nodes(config, tmp_path / "fed"), lost_from(1, 3, Stage.MASK, after_answer=False))
    replay = Replay(federate_in_process(config, grid).path, say=quiet)
    (scene,) = replay.scenes([3])
    assert set(scene.uploads) == {0, 2, 3}
    assert scene.same_bits


def test_noise_of_a_federation_is_drawn_anew_and_the_audit_says_so(config):
    config |= {"counts": "split"}
    config["settings"] += " protect.clip=1.0 protect.noise=5.0"
    said: list[str] = []
    replay = Replay(federate_in_process(config).path, say=said.append)
    assert any("drawn anew" in sentence for sentence in said)
    scene = replay.scenes([3])[0]
    assert scene.same_bits is None
    config |= {"counts": "fixed", "out": config["out"] + "-fixed"}
    with pytest.raises(UserError, match="each client can audit its own"):
        Replay(federate_in_process(config).path, say=quiet)


def test_a_federation_with_data_of_its_own_is_refused_with_what_to_do_instead(config, tmp_path, clouds):
    rows = np.arange(0, len(clouds.y_train), 160)
    own = {"x_train": clouds.x_train.numpy()[rows], "y_train": clouds.y_train.numpy()[rows]}
    np.savez(tmp_path / "own.npz", **own, x_test=clouds.x_test.numpy(), y_test=clouds.y_test.numpy())
    nodes = [Node(part, config, {DATA: str(tmp_path / "own.npz")}) for part in range(4)]
    record = federate_in_process(config, FakeGrid(nodes))
    with pytest.raises(UserError, match="each client can audit its own with: rebafl privacy audit"):
        Replay(record.path, say=quiet)
