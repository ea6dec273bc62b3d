"""(ε, δ) of composed Gaussian mechanisms: against the definition, and against a general accountant."""

import math

import mpmath
import pytest

from rebafl.runs.accountant import Accountant, accountant_of, delta_of, epsilon_of
from rebafl.training.protections import Protections

CASES = [(0.5, 1, 1e-5), (1.0, 1, 1e-5), (1.0, 100, 1e-5), (5.0, 200, 1e-6), (10.0, 50, 1e-3), (20.0, 1, 1e-5)]
"""Noise, uploads, δ."""


def closed_form(noise, uploads, epsilon):
    """δ(ε) of T composed Gaussians with 50 digits."""
    with mpmath.workdps(50):
        mu = mpmath.sqrt(uploads) / mpmath.mpf(noise)
        first, second = mpmath.ncdf(mu / 2 - epsilon / mu), mpmath.ncdf(-mu / 2 - epsilon / mu)
        return first - mpmath.exp(epsilon) * second


@pytest.mark.parametrize(("noise", "uploads", "delta"), CASES)
def test_epsilon_is_that_of_the_closed_form(noise, uploads, delta):
    found = Accountant(1 / noise**2, delta).epsilon(uploads)
    expected = mpmath.findroot(
        lambda e: mpmath.log(closed_form(noise, uploads, e)) - mpmath.log(delta), (found * 0.9, found * 1.1 + 1e-3)
    )
    assert found == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("mu", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_delta_is_the_hockey_stick_of_two_gaussians(mu, epsilon):
    """By its definition: the integral of max(0, p - exp(ε) q) over the densities of N(μ, 1) and N(0, 1)."""
    start = epsilon / mu + mu / 2  # where p = exp(ε) q

    def density(x):
        return mpmath.npdf(x, mu, 1) - mpmath.exp(epsilon) * mpmath.npdf(x, 0, 1)

    expected = mpmath.quad(density, [start, start + 5, start + 20, mpmath.inf])
    assert delta_of(mu, epsilon) == pytest.approx(float(expected), rel=1e-6)


def test_epsilon_of_a_case_that_is_known():
    """Noise 1, one upload, δ = 1e-5: as printed for the analytic Gaussian mechanism."""
    assert epsilon_of(1.0, 1e-5) == pytest.approx(4.377, abs=1e-3)


def test_far_tails_neither_overflow_nor_vanish():
    assert 1250 < epsilon_of(50.0, 1e-5) < 1250 + 50 * 4.3
    assert epsilon_of(1e-6, 1e-5) == 0.0
    assert math.isfinite(epsilon_of(1000.0, 1e-12))


def test_more_uploads_give_more_away():
    values = [Accountant(0.25, 1e-5).epsilon(uploads) for uploads in range(50)]
    assert values[0] == 0.0
    assert values == sorted(values)
    assert len(set(values)) == 50


def test_both_kinds_of_noise_add_up():
    assert accountant_of(Protections()) is None
    assert accountant_of(Protections(clip=1.0)) is None
    both = accountant_of(Protections(clip=1.0, noise=3.0, update_clip=1.0, update_noise=4.0))
    assert both.rate == pytest.approx((5 / 12) ** 2)
    assert both.epsilon(1) == pytest.approx(epsilon_of(5 / 12, 1e-5))


def test_the_budget_is_never_exceeded():
    accountant = accountant_of(Protections(clip=1.0, noise=2.0, budget=6.0))
    allowed = next(uploads for uploads in range(1000) if not accountant.allows(uploads))
    assert accountant.epsilon(allowed) <= 6.0 < accountant.epsilon(allowed + 1)


@pytest.mark.filterwarnings("ignore")  # of the other package
@pytest.mark.parametrize(("noise", "uploads", "delta"), CASES)
def test_a_general_accountant_says_the_same(noise, uploads, delta):
    accountants = pytest.importorskip("opacus.accountants", reason="the extra `privacy` is not installed")
    found = Accountant(1 / noise**2, delta).epsilon(uploads)
    general = accountants.PRVAccountant()
    general.history = [(noise, 1.0, uploads)]
    assert general.get_epsilon(delta, eps_error=0.002 * found) == pytest.approx(found, rel=0.01)
    renyi = accountants.RDPAccountant()
    renyi.history = [(noise, 1.0, uploads)]
    assert found <= renyi.get_epsilon(delta) <= 1.25 * found
