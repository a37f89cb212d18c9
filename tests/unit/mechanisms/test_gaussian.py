"""The discrete Gaussian: its fit, its support, and `information` as a true bound on the exact delta curve."""

from __future__ import annotations

import builtins
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.mechanisms.gaussian import DiscreteGaussian, _by_opendp, _saturating_sum, simulated
from reticent.privacy import GaussianDP, Neighbours, delta_of
from reticent.randomness import SECURE, SimulationStream

ALARM = 1e-10  # false-alarm rate of each fit
HIGHEST, LOWEST = 2**63 - 1, -(2**63)


def pmf(sigma, reach):
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-(x**2) / (2.0 * sigma**2))
    return weights / math.fsum(weights)


def fit(draws, sigma, width=1):
    """p-value of chi-square against the exact law with this sigma, in cells of `width` values."""
    reach = int(max(np.abs(draws).max(), 8 * sigma)) // width * width + width
    expected = np.append(pmf(sigma, reach)[:-1].reshape(-1, width).sum(axis=1), 0.0) * draws.size
    observed = np.bincount((draws + reach) // width, minlength=expected.size)
    keep = expected >= 20.0
    terms = ((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    tail = expected[~keep].sum()
    return stats.chi2.sf(terms + (observed[~keep].sum() - tail) ** 2 / max(tail, 1e-9), keep.sum())


def opendp_noise(sigma, size):
    return _by_opendp(np.zeros(size, dtype=np.int64), sigma)


def simulation_noise(sigma, size):
    return simulated(sigma, size, SimulationStream(21))


# The awkward scales have no short rational; a wrong division inside a sampler would show there.
@pytest.mark.parametrize("sigma", [1.0, 3.7, 10.300000000000001])
@pytest.mark.parametrize(("noise", "size"), [(opendp_noise, 60_000), (simulation_noise, 200_000)])
def test_noise_follows_the_law(noise, size, sigma):
    draws = noise(sigma, size)
    assert fit(draws, sigma) > ALARM
    assert fit(draws, sigma * 1.08) < ALARM  # planted: an 8 % wrong scale


@pytest.mark.slow
@pytest.mark.parametrize("noise", [opendp_noise, simulation_noise])
def test_one_per_cent_is_seen_with_a_million_draws(noise):
    draws = noise(10.0, 1_000_000)
    assert fit(draws, 10.0) > ALARM
    assert fit(draws, 10.1) < ALARM


@pytest.mark.parametrize(("rng", "size"), [(None, 50_000), (SimulationStream(4), 200_000)])
def test_what_is_run_has_the_sigma_it_claims(rng, size):
    mechanism = DiscreteGaussian(1 << 12, 0.5)
    draws = mechanism.perturb(np.full(size, 1000), rng) - 1000
    assert mechanism.sigma == pytest.approx(4096 / math.sqrt(0.5), rel=1e-7)
    assert fit(draws, mechanism.sigma, width=256) > ALARM
    assert fit(draws, mechanism.sigma * 1.08, width=256) < ALARM
    assert len(np.unique(draws % 256)) == 256  # no digit of the grid is missing


def exact_delta(sigma, shift, epsilon):
    """delta(epsilon) of the discrete Gaussian and its shift by `shift`, summed over the integers."""
    centre = epsilon * sigma**2 / shift - shift / 2.0  # p(x) = e^epsilon p(x + shift) here
    x = np.arange(math.floor(centre), max(centre, 0.0) + 12 * sigma + 40)
    gain = (x - centre) * shift / sigma**2  # ln p(x) - epsilon - ln p(x + shift)
    terms = np.exp(-(x**2) / (2.0 * sigma**2)) * -np.expm1(-gain)
    norm = math.sqrt(2.0 * math.pi) * sigma * (1.0 + 2.0 * math.exp(-2.0 * (math.pi * sigma) ** 2))  # Poisson
    return terms[gain > 0.0].sum() / norm


def violations(sigma, shift, information, epsilons):
    """Epsilons at which the exact delta exceeds the Gaussian curve of the claimed information."""
    mu = math.sqrt(information)
    return [e for e in epsilons if exact_delta(sigma, shift, e) > delta_of(mu, e) * (1 + 1e-12)]


CASES = [(d, i) for d in (1, 2, 3, 7, 20) for i in (0.01, 0.1, 0.5, 1.0, 4.0) if d * d / i >= 0.9]


def sweep(d, information):
    """Epsilons around the curve, at spacings that hit every offset of the threshold within the grid."""
    mu = math.sqrt(information)
    return np.linspace(0.0, mu * mu / 2.0 + 8.0 * mu, 401) + 1e-9


@pytest.mark.parametrize(("d", "information"), CASES)
def test_one_sixth_makes_information_a_true_bound(d, information):
    # Without the floor of 2^10 on sigma, where the correction matters most.
    sigma = math.sqrt(d * d / information + 1.0 / 6.0)
    assert violations(sigma, d, information, sweep(d, information)) == []


@pytest.mark.parametrize(("d", "information"), [(1, 0.1), (1, 1.0), (2, 1.0), (3, 4.0), (7, 1.0)])
def test_without_the_sixth_the_bound_is_violated_and_the_check_sees_it(d, information):
    assert violations(math.sqrt(d * d / information), d, information, sweep(d, information))


@pytest.mark.parametrize(
    ("d", "information"), [(2048, 1.0), (1024, 0.25), (512, 4.0), (10_000, 9.0), (1, 1e-8)]
)
def test_information_bounds_the_mechanism_as_run(d, information):
    mechanism = DiscreteGaussian(d, information)
    for shift in {d, max(1, d // 3)}:
        assert violations(mechanism.sigma, shift, information, sweep(d, information)[::10]) == []


def test_exact_delta_agrees_with_the_accountant_of_the_continuous_law():
    # At a large sigma the two laws agree to 1 / (24 sigma^2).
    for epsilon in (0.1, 1.0, 3.0):
        assert exact_delta(5000.0, 5000, epsilon) == pytest.approx(delta_of(1.0, epsilon), rel=1e-6)


def test_sigma_is_never_rounded_down_and_never_below_the_floor():
    for d in (1, 3, 2**24, 2**30 + 1):
        for information in (Fraction(1, 3), 1e-6, 0.7, 5, 1e6):
            mechanism = DiscreteGaussian(d, information)
            assert mechanism.sigma >= 1024.0
            assert Fraction(mechanism.sigma) ** 2 >= d * d / Fraction(information) + Fraction(1, 6)
            assert Fraction(mechanism.guarantee.mu) ** 2 >= Fraction(information)
            assert mechanism.variance == mechanism.sigma**2


def test_guarantee():
    mechanism = DiscreteGaussian(4, 0.25, unit="one person", neighbours=Neighbours.ADD_REMOVE_ONE)
    assert mechanism.guarantee == GaussianDP(0.5, unit="one person", neighbours=Neighbours.ADD_REMOVE_ONE)
    assert repr(mechanism) == "DiscreteGaussian(sensitivity=4, information=0.25)"


@pytest.mark.parametrize("rng", [None, SECURE, 7])
def test_total_on_any_data(rng):
    mechanism = DiscreteGaussian(1, 1.0)
    odd = [2**70, -(2**70), math.nan, math.inf, "text", None, 5, True, 7.0, 2j]
    noisy = mechanism.perturb(odd, SimulationStream(7) if rng == 7 else rng)
    clean = np.array([HIGHEST, LOWEST, 0, HIGHEST, 0, 0, 5, 1, 7, 0], dtype=object)
    assert noisy.dtype == np.int64
    assert all(abs(int(a) - int(b)) < 20 * mechanism.sigma for a, b in zip(noisy, clean, strict=True))


def test_simulation_is_repeatable_and_the_secure_path_is_not():
    mechanism = DiscreteGaussian(1, 1.0)
    zeros = np.zeros((20, 30), dtype=np.int64)
    first = mechanism.perturb(zeros, SimulationStream(9))
    assert first.shape == (20, 30)
    np.testing.assert_array_equal(first, mechanism.perturb(zeros, SimulationStream(9)))
    assert (mechanism.perturb(zeros) != mechanism.perturb(zeros)).any()
    assert np.ndim(mechanism.perturb(3)) == 0
    large = np.array([2**64 - 1], dtype=np.uint64)
    assert mechanism.perturb(large)[0] > HIGHEST - 20 * mechanism.sigma


def test_saturating_sum():
    values = np.array([HIGHEST, LOWEST, HIGHEST, 5, -5], dtype=np.int64)
    noise = np.array([1, -1, -1, 2, 7], dtype=np.int64)
    assert _saturating_sum(values, noise).tolist() == [HIGHEST, LOWEST, HIGHEST - 1, 7, 2]


def test_without_opendp_there_is_one_clear_line(monkeypatch):
    real_import = builtins.__import__

    def no_opendp(name, *args, **kwargs):
        if name.startswith("opendp"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_opendp)
    mechanism = DiscreteGaussian(1, 1.0)
    with pytest.raises(
        MissingExtra, match=r"the discrete Gaussian needs an optional part: .*reticent\[central\]"
    ):
        mechanism.perturb([1])
    assert mechanism.perturb([1], SimulationStream(1)).shape == (1,)


@pytest.mark.parametrize(
    ("sensitivity", "information", "message"),
    [
        (0, 1.0, "sensitivity must be >= 1"),
        (1.5, 1.0, "sensitivity must be a whole number"),
        (True, 1.0, "sensitivity must be a whole number"),
        ("1", 1.0, "sensitivity must be a whole number"),
        (1, 0.0, "information must be > 0"),
        (1, -1.0, "information must be > 0"),
        (1, Fraction(-1, 3), "information must be > 0"),
        (1, math.nan, "information must be finite"),
        (1, float("1e309"), "information must be finite"),
        (1, True, "information must be a number"),
        (1, "1", "information must be a number"),
        (2**50, 1e-6, r"sigma must be <= 2\^56 grid units, got 1.1259e\+18"),
        (1, 1e-300, r"sigma must be <= 2\^56 grid units"),
    ],
)
def test_bad_parameters(sensitivity, information, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message) as caught:
        DiscreteGaussian(sensitivity, information)
    assert "\n" not in str(caught.value)


def test_bad_values_are_refused_by_type_and_shape_only():
    mechanism = DiscreteGaussian(1, 1.0)
    with pytest.raises(ParameterTypeError, match="values must be whole numbers, got dtype float64"):
        mechanism.perturb(np.array([1.0]))
    with pytest.raises(ParameterError, match=r"values must hold at least one value, got shape \(0,\)"):
        mechanism.perturb([])
    assert mechanism.perturb([[1], [2, 3]]).shape == (2,)  # a list among the values is no number: 0
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        mechanism.perturb([1], 5)
