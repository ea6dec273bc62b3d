"""Tracing once more, in plain numpy from a run's checkpoint: nothing of the audit's own arithmetic is used."""

import numpy as np
import pytest

from rebafl.privacy.replay import Replay
from rebafl.privacy.views import pools
from support.clouds import CLASSES
from support.toy import quiet


def features(weights, data, index):
    """The hidden layer of the small model, from the numbers in the files."""
    x = data.inputs(data.x_train[index]).numpy().astype(np.float64)
    hidden = x @ weights["hidden.weight"].numpy().astype(np.float64).T + weights["hidden.bias"].numpy()
    return np.where(hidden > 0, hidden, 0.01 * hidden)


def wins(members, others):
    return ((members[:, None] > others) + 0.5 * (members[:, None] == others)).mean()


def test_tracing_by_other_code_finds_the_same(run, audited, clouds):
    replay = Replay(run, clouds, say=quiet)
    (scene,) = replay.scenes([6])
    split = replay.experiment.work.split
    divided = pools(split.labels, replay.unheld(), CLASSES, 128, seed=0)
    by_client = {}
    for client, upload in scene.uploads.items():
        local = {name: tensor + upload.change[name] for name, tensor in scene.sent.weights.items()}
        found = []
        for label in np.unique(split.labels[split.indices(client)]):
            own = split.indices(client)[split.labels[split.indices(client)] == label]
            reference, public = (
                features(local, clouds, part) for part in (divided[label].reference, divided[label].held_out)
            )
            _, others = divided[label].fakes_and_others(client, label, 0)
            mean, covariance = reference.mean(0), np.cov(reference.T)
            inverse = np.linalg.inv(covariance + 1e-3 * np.trace(covariance) / len(mean) * np.eye(len(mean)))
            p, k = upload.shared["prototypes"][label].numpy() - mean, len(own)

            def score(x, inverse=inverse, p=p, k=k, mean=mean):
                centred = x - mean
                return centred @ inverse @ p - np.einsum("ij,jk,ik->i", centred, inverse, centred) / (2 * k)

            found.append(wins(score(features(local, clouds, own)), score(public[others])))
        by_client[client] = np.mean(found)
    row = next(r for r in audited["sent"] if r["what"] == "each client's upload" and r["round"] == "6")
    assert row["auc"]["values"] == pytest.approx(list(by_client.values()), abs=2e-3)
    assert np.mean(list(by_client.values())) > 0.6, "there is something to be found"
