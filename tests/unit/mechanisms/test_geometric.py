"""Two-sided geometric noise: the proof's bound, enumerated; the sampler, against its law."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.geometric import GeometricDigits, TwoSidedGeometric
from reticent.randomness import SimulationStream

# False-alarm rate of each fit: 1e-6. Seeds are fixed, so a pass stays a pass.
ALARM = 1e-6


def fit(draws, law):
    """p-value of chi-square for integers with the symmetric law `law(z)`; about 50 cells."""
    reach = int(np.abs(draws).max()) + 1
    z = np.arange(-reach, reach + 1)
    expected = law(z) * draws.size
    observed = np.bincount(draws + reach, minlength=z.size)
    edges, held = [0], 0.0
    for index, part in enumerate(expected):
        held += part
        if held >= max(20.0, draws.size / 50):
            edges.append(index + 1)
            held = 0.0
    edges[-1] = z.size
    cells = np.add.reduceat(expected, edges[:-1])
    cells[0] += (draws.size - expected.sum()) / 2.0  # the tails beyond what was drawn
    cells[-1] += (draws.size - expected.sum()) / 2.0
    counts = np.add.reduceat(observed, edges[:-1])
    return stats.chi2.sf(((counts - cells) ** 2 / cells).sum(), cells.size - 1)


def one_sided_law(digits, reach):
    """P(G = g) for g < reach, from the thresholds alone."""
    total = float(1 << digits.bits)
    g = np.arange(reach)
    law = np.ones(reach)
    for digit, count in enumerate(digits.ones):
        one = count / total
        law *= np.where(g >> digit & 1, one, 1.0 - one)
    ratio = digits.above / total
    return law * ratio ** (g >> len(digits.ones)) * (1.0 - ratio)


def two_sided_law(digits, reach):
    """P(Z = z) for 0 <= z < reach."""
    law = one_sided_law(digits, 4096)
    return np.array([law[: 4096 - reach] @ law[z : 4096 - reach + z] for z in range(reach)])


@pytest.mark.parametrize("sensitivity", [1, 2, 3, 5, 9, 16, 31])
@pytest.mark.parametrize("rate", [Fraction(3, 10), Fraction(1, 20), Fraction(9, 10)])
def test_the_loss_bounds_the_enumerated_ratio(rate, sensitivity):
    # Six-bit thresholds and few digits make rounding errors large enough to matter.
    digits = GeometricDigits.made(rate, bits=6, rare=2.0)
    law = np.log(two_sided_law(digits, 200))
    worst = max(np.abs(law[s:] - law[: law.size - s]).max() for s in range(1, sensitivity + 1))
    # The same with z and z + s on different sides of 0 is a difference of |z| by less than s.
    assert worst <= float(digits.loss(sensitivity)) * (1 + 1e-12)


def test_the_rate_alone_would_not_bound_it():
    digits = GeometricDigits.made(Fraction(3, 10), bits=6, rare=2.0)
    law = np.log(two_sided_law(digits, 200))
    assert np.abs(np.diff(law)).max() > 0.3


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.01, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 7, 4096, 131072, 10**6])
def test_the_thresholds_keep_epsilon_and_little_is_lost(epsilon, sensitivity):
    if epsilon < 2.0**-40 * sensitivity:
        pytest.skip("outside the range")
    noise = TwoSidedGeometric(epsilon, sensitivity)
    assert Fraction(noise.digits.loss(sensitivity)) <= Fraction(epsilon)
    assert noise.rate * sensitivity == pytest.approx(epsilon, rel=1e-6)
    if noise.rate < 1.0:
        ratio = math.exp(-noise.rate)
        assert noise.variance == pytest.approx(2 * ratio / math.expm1(-noise.rate) ** 2, rel=1e-9)


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_every_rate_of_the_range_can_be_made(count):
    """Down to 2^-40 per unit; there one rounding of the part above would exceed epsilon itself."""
    rng = np.random.default_rng(40)
    cases = [(2.0**-40, 1), (2.0**-39, 1), (20.0, 1), (20.0, 20 << 40)]
    for _ in range(count):
        sensitivity = round(math.exp(rng.uniform(0.0, math.log(20 << 40))))
        least = math.nextafter(2.0**-40 * sensitivity, 21.0)
        cases.append((min(20.0, math.exp(rng.uniform(math.log(least), math.log(20.0)))), sensitivity))
    for epsilon, sensitivity in cases:
        if Fraction(epsilon) < Fraction(sensitivity, 1 << 40):
            continue  # just below, by the rounding of this loop
        noise = TwoSidedGeometric(epsilon, sensitivity)
        assert Fraction(noise.digits.loss(sensitivity)) <= Fraction(epsilon), (epsilon, sensitivity)
        assert float(noise.digits.rate) * sensitivity > 0.997 * epsilon, (epsilon, sensitivity)


@pytest.mark.parametrize("digit", [0, 5, -1])
def test_a_wrong_threshold_is_refused(digit):
    noise = TwoSidedGeometric(1.0, 64)
    ones = list(noise.digits.ones)
    ones[digit] -= ones[digit] // 1000
    noise.digits = dataclasses.replace(noise.digits, ones=tuple(ones))
    with pytest.raises(GuaranteeError, match="the loss exceeds epsilon 1 for sensitivity 64"):
        noise.check()


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1), (1.0, 10), (0.3, 30), (5.0, 2)])
def test_draws_follow_the_law(epsilon, sensitivity):
    noise = TwoSidedGeometric(epsilon, sensitivity)
    draws = noise.sample(200_000, SimulationStream(11))
    assert fit(draws, noise.probability) > ALARM
    assert draws.var() == pytest.approx(noise.variance, rel=0.03)
    wrong = TwoSidedGeometric(epsilon * 1.03, sensitivity)
    if noise.rate < 2.0:  # with few values, 3 % is below reach of 200,000 draws
        assert fit(draws, wrong.probability) < ALARM


@pytest.mark.slow
def test_one_per_cent_is_seen_with_a_million_draws():
    noise, wrong = TwoSidedGeometric(1.0, 10), TwoSidedGeometric(1.01, 10)
    draws = noise.sample(1_000_000)
    assert fit(draws, noise.probability) > ALARM
    assert fit(draws, wrong.probability) < ALARM


def test_the_part_above_the_digits_is_drawn_too():
    # One digit only: nearly everything comes from the repeated trials.
    digits = GeometricDigits.made(Fraction(1, 4), rare=0.5)
    assert len(digits.ones) == 1
    both = digits.sample(400_000, SimulationStream(5))
    assert fit(both[:200_000] - both[200_000:], TwoSidedGeometric(0.25, 1).probability) > ALARM
    cut = np.minimum(both, 15)  # planted: a truncated tail
    assert fit(cut[:200_000] - cut[200_000:], TwoSidedGeometric(0.25, 1).probability) < ALARM


def test_probability_is_the_realised_law():
    noise = TwoSidedGeometric(2.0, 20)
    np.testing.assert_allclose(noise.probability(np.arange(60)), two_sided_law(noise.digits, 60), rtol=1e-10)
    assert noise.probability(np.arange(-2000, 2001)).sum() == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ParameterTypeError, match="values must be whole numbers, got dtype float64"):
        noise.probability([0.5])


def test_streams_and_sizes():
    noise = TwoSidedGeometric(1.0, 100)
    np.testing.assert_array_equal(
        noise.sample(50_000, SimulationStream(1)), noise.sample(50_000, SimulationStream(1))
    )
    assert noise.sample(0).size == 0
    assert noise.sample(5).dtype == np.int64
    assert (noise.sample(1000) != noise.sample(1000)).any()
    assert repr(noise) == "TwoSidedGeometric(epsilon=1, sensitivity=100)"
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        noise.sample(5, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "message"),
    [
        (0.0, 1, "epsilon must be > 0"),
        (-1.0, 1, "epsilon must be > 0"),
        (math.nan, 1, "epsilon must be finite"),
        (float("1e309"), 1, "epsilon must be finite"),
        (21.0, 1, "epsilon must be > 0 and <= 20"),
        (True, 1, "epsilon must be a number"),
        ("1", 1, "epsilon must be a number"),
        (1.0, 0, "sensitivity must be >= 1"),
        (1.0, 2.0, "sensitivity must be a whole number"),
        (1.0, True, "sensitivity must be a whole number"),
        (1e-3, 1 << 40, "epsilon must be >= 2\\^-40 times the sensitivity"),
    ],
)
def test_bad_parameters(epsilon, sensitivity, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message) as caught:
        TwoSidedGeometric(epsilon, sensitivity)
    assert "\n" not in str(caught.value)
