"""The fit: the law it is given, the power it has, and its false alarms."""

import numpy as np
import pytest

from reticent.audit import fit
from reticent.audit.cells import laws_of
from reticent.audit.planted.samplers import GaussianScaleOff, ScaleOff
from reticent.audit.statistics import fit_p_values, independence_p_value
from reticent.audit.subjects import CATALOGUE, made, subject_of
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.randomness import SimulationStream


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_laws_are_laws_and_samplers_follow_them(name, rng):
    mechanism = made(name, 1.0)
    for value in subject_of(mechanism).inputs:
        for law in laws_of(mechanism, value):
            assert (law.law >= 0).all()
            if law.what != "seeds":
                assert law.law.sum() == pytest.approx(1.0, abs=1e-9)
    found = fit(mechanism, subject_of(mechanism).inputs, draws=50_000, rng=rng)
    assert found.passed, found.detail
    assert found.tests >= 1


@pytest.mark.parametrize("factor", [1.01, 1 / 1.01])
def test_one_per_cent_of_scale_is_found_with_a_million_draws(factor, rng):
    right = DiscreteGaussian(1025, 1.0)
    assert not fit(right, [0], sampler=GaussianScaleOff(right.sigma, factor, rng)).passed
    assert fit(right, [0], sampler=GaussianScaleOff(right.sigma, 1.0, rng)).passed


def test_a_laplace_scale_off_by_one_per_cent_is_found(rng):
    assert not fit(ScaleOff(epsilon=1.0), [0.3], rng=rng).passed
    assert fit(Laplace(epsilon=1.0), [0.3], rng=rng).passed


def test_a_symbol_that_cannot_be_is_found():
    assert fit_p_values([500, 500, 1], [0.5, 0.5, 0.0]) == [0.0]


def test_one_missing_symbol_out_of_two_thousand_is_found(rng):
    law = np.full(2000, 1 / 2000)
    counts = np.bincount((rng.units(1_000_000) % 1.0 * 2000).astype(int), minlength=2000)
    assert min(fit_p_values(counts, law)) > 1e-6
    counts[1200], counts[1201] = 0, counts[1200] + counts[1201]
    assert min(fit_p_values(counts, law)) < 1e-6


def test_p_values_of_the_right_law_are_uniform_enough():
    # The law is skew and mostly rare symbols; 2,000 p-values, none far too small: 1e-5 among 4,000
    # has probability 4 %, for this seed it does not happen.
    rng = SimulationStream(5)
    law = np.exp(-np.arange(300) / 25.0)
    law /= law.sum()
    edges = np.cumsum(law)[:-1]
    p = []
    for _ in range(2000):
        symbols = np.searchsorted(edges, rng.units(5000) - 1.0, side="right")
        p += fit_p_values(np.bincount(symbols, minlength=300), law)
    assert min(p) > 1e-5
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.02)


def test_dependence_is_found_and_independence_left_alone(rng):
    one, two = rng.words(20_000) & np.uint64(7), rng.words(20_000) & np.uint64(7)
    assert independence_p_value(one, two) > 1e-4
    assert independence_p_value(one, one ^ (two & np.uint64(1))) < 1e-12


def test_equal_columns_with_a_rare_code_are_not_taken_for_independent():
    codes = np.repeat([0, 1, 2, 3], [32, 27, 28, 13])  # the rare code alone is expected less than twice
    assert independence_p_value(codes, codes) < 1e-15
    assert independence_p_value(np.repeat([0, 1], [99, 1]), np.repeat([0, 1], [99, 1])) == 1.0
