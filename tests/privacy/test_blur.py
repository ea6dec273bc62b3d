"""Clipped and blurred means: what an attacker who knows of the noise makes of them, and what no attacker can."""

import math

import numpy as np
import pytest

from rebafl.privacy.blur import Blur, blur_of
from rebafl.privacy.measures import NORMAL
from rebafl.privacy.tracing import synthetic
from rebafl.runs.experiment import prepare
from rebafl.runs.settings import make_settings
from rebafl.training.protections import Protections
from support.toy import TOY_SETTINGS, TinyNet, quiet

D, K, BOUND = 64, 100, 12.0  # hardly any of 64 normal numbers are longer than 12


def best(noise, k=K):
    """The AUC of the likelihood ratio for d independent normal features whose sum has the noise."""
    return NORMAL.cdf(math.sqrt(D / (2 * (k + 2 * (noise * BOUND) ** 2))))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 1.0])
def test_the_attacker_reaches_what_the_likelihood_ratio_can(noise):
    found = synthetic(D, K, clients=12, blur=Blur(BOUND, noise))
    assert found.auc.value == pytest.approx(best(noise), abs=0.03)
    assert found.fakes.low - 0.02 <= 0.5 <= found.fakes.high + 0.02


@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_no_attacker_does_better_than_the_noise_allows(noise):
    found = synthetic(D, 10, clients=20, blur=Blur(BOUND, noise))
    assert found.auc.low <= NORMAL.cdf(1 / (noise * math.sqrt(2)))


def test_at_noise_ten_hardly_anything_is_left():
    """With features as long as the bound, and nothing but noise of the sum in the way: Φ(√(d / 2(k + 2 z² C²)))."""
    found = synthetic(128, K, clients=20, blur=Blur(12.0, 10.0))
    limit = NORMAL.cdf(math.sqrt(128 / (2 * (K + 2 * 120**2))))
    assert limit < NORMAL.cdf(1 / (10 * math.sqrt(2))) < 0.53
    assert found.auc.low <= limit
    assert found.auc.value < 0.53


def test_an_attacker_who_ignores_the_noise_finds_less():
    def ignorant(images, mean, k):
        return images @ mean - (images**2).sum(1) / (2 * k)

    class Naive(Blur):
        def sharpening(self, *_):
            return None

    knowing = synthetic(D, K, clients=12, blur=Blur(BOUND, 0.3))
    naive = synthetic(D, K, clients=12, blur=Naive(BOUND, 0.3), score=ignorant)
    assert knowing.auc.value > naive.auc.value


def test_the_audits_means_are_blurred_as_the_clients_are(toy):
    """The same sum of clipped features, and noise of the same spread: √2 z C on sums, √2 z on counts."""
    protect = Protections(clip=0.5, noise=2.0)
    experiment = prepare(make_settings(TOY_SETTINGS), toy, TinyNet, say=quiet)
    client, net = experiment.work.client(3, 1, None), experiment.work.make_net()
    blur, features = blur_of(protect), client.features(net)
    sums = protect._clipped_sums(client, net).numpy()
    for label in range(4):
        own = blur.clipped(features[client.labels == label])
        assert np.allclose(own.sum(0), sums[label])
    assert blur.spread == pytest.approx(2.0 * 2**0.5)
    rows = np.zeros((5000, 40))
    random = np.random.default_rng(0)
    drawn = np.concatenate([blur.mean(rows, random) for _ in range(60)]) * 5000
    assert drawn.std() == pytest.approx(0.5 * 2.0 * 2**0.5, rel=0.06)
